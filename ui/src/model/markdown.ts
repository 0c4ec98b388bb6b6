/** A part of a page about a code. */
export type Block =
  | { kind: "title" | "code" | "paragraph"; text: string }
  | { kind: "list"; items: string[] };

/** Split a page into its parts. Only what the pages use is known; a table is shown as it is written. */
export function blocksOf(markdown: string): Block[] {
  const blocks: Block[] = [], lines = markdown.split("\n");
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i], taken = (end: (text: string) => boolean) => {
      const start = i;
      while (i < lines.length && !end(lines[i])) i++;
      return lines.slice(start, i);
    };
    if (line.startsWith("```")) {
      i++;
      blocks.push({ kind: "code", text: taken(text => text.startsWith("```")).join("\n") });
    } else if (line.startsWith("#")) {
      blocks.push({ kind: "title", text: line.replace(/^#+\s*/, "") });
    } else if (line.startsWith("|")) {
      blocks.push({ kind: "code", text: taken(text => !text.startsWith("|")).join("\n") });
      i--;
    } else if (line.startsWith("- ")) {
      const items = taken(text => !text.trim() || text.startsWith("```")).join("\n").split(/\n(?=- )/);
      blocks.push({ kind: "list", items: items.map(item => item.replace(/^- /, "").replace(/\s*\n\s*/g, " ")) });
      i--;
    } else if (line.trim()) {
      const text = taken(text => !text.trim() || /^(```|#|\||- )/.test(text)).join(" ");
      blocks.push({ kind: "paragraph", text });
      i--;
    }
  }
  return blocks;
}

/** Split a text into plain words and code. Links lose their address, because a file and a closed network have no pages to go to. */
export function piecesOf(text: string): { text: string; code: boolean }[] {
  const plain = text.replace(/\[([^\]]+)\]\([^)]*\)/g, "$1").replace(/\*\*([^*]+)\*\*/g, "$1");
  return plain.split("`").map((piece, i) => ({ text: piece, code: i % 2 === 1 })).filter(piece => piece.text);
}
