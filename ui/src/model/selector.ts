// The selector language of plans, plus plain text for a search box.

export type Test = (name: string) => boolean;

interface Pattern { excludes: boolean; test: Test }

/** Return the test for a selector, or null if it selects everything because it is empty. */
export function readSelector(text: string, types: Record<string, string>, known: (name: string) => boolean): Test | null {
  const patterns = text.split(/[\s,]+/).filter(part => part !== "" && part !== "!").map((part): Pattern => {
    const excludes = part.startsWith("!");
    return { excludes, test: readPattern(excludes ? part.slice(1) : part, types, known) };
  });
  if (!patterns.length) return null;
  const included = patterns.filter(one => !one.excludes), excluded = patterns.filter(one => one.excludes);
  // In a search box, a selector that only excludes means everything else.
  return name => (included.length ? included.some(one => one.test(name)) : name !== ".")
    && !excluded.some(one => one.test(name));
}

function readPattern(text: string, types: Record<string, string>, known: (name: string) => boolean): Test {
  if (text.startsWith("type:")) {
    const wanted = glob(text.slice("type:".length));
    // A parameter or a tap has the class of the module that owns it.
    return name => wanted.test(types[name] ?? types[ownerOf(name)] ?? "");
  }
  if (text.includes("*")) {
    const wanted = glob(text);
    return name => name !== "." && wanted.test(name);
  }
  if (known(text)) return name => name === text;
  const plain = text.toLowerCase();
  return name => name.toLowerCase().includes(plain);
}

function ownerOf(name: string): string {
  const end = Math.max(name.lastIndexOf("."), name.lastIndexOf(":"));
  return end > 0 ? name.slice(0, end) : ".";
}

/** Translate a glob: `*` stays within a part, `**` crosses parts, `**.` is any number of parts, including none. */
export function glob(text: string): RegExp {
  let made = "";
  // Repeated stars mean the same as one pair, but take a regular expression much longer.
  text = text.replace(/\*{3,}/g, "**").replace(/(?:\*\*\.){2,}/g, "**.");
  for (let i = 0; i < text.length;) {
    if (text.startsWith("**.", i) && (i === 0 || ".:".includes(text[i - 1]!))) {
      made += "(?:[^]*[.:])?";
      i += 3;
    } else if (text.startsWith("**", i)) {
      made += "[^]*";
      i += 2;
    } else if (text[i] === "*") {
      made += "[^.:]*";
      i++;
    } else {
      made += text[i]!.replace(/[\\^$.*+?()[\]{}|/-]/, "\\$&");
      i++;
    }
  }
  return new RegExp(`^${made}$`);
}
