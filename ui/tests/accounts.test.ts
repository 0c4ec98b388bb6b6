import { describe, expect, it } from "vitest";
import { gptRun } from "../fixtures/gpt";
import { align, largestOf, rangesIn, ratio, ratioText } from "../src/model/alignment";
import { account, imbalance } from "../src/model/accounts";
import type { LedgerEntry } from "../src/data/source";
import { blocksOf, piecesOf } from "../src/model/markdown";
import { field } from "../src/parts/map_export";
import { visible } from "../src/model/visible";

const entry: LedgerEntry = { hook: "clip", at: "grad", do: "clip()", sites: 3, due: 10, fired: 30, changed: 0, failed: 0, skipped: {}, dormant: {} };

describe("accounts", () => {
  it("expect each site to fire in each step in which the hook is due", () => {
    expect(imbalance(account(entry))).toBeNull();
    expect(imbalance(account({ ...entry, fired: 20, dormant: { frozen: 1 } }))).toBeNull();
    expect(imbalance(account({ ...entry, fired: 26, skipped: { "no gradient": 4 } }))).toBeNull();
    expect(imbalance(account({ ...entry, fired: 26, skipped: 4 }))).toBeNull();
    expect(account({ ...entry, fired: 60 })).toMatchObject({ missing: 0, more: true });
    expect(imbalance(account({ ...entry, fired: 26, skipped: { "no gradient": 3 } }))).toBe(
      "clip should have fired 30 times. It fired 26 times and was skipped 3 times, so 1 firing has no explanation.");
  });

  it("do not expect a module to be called in each step", () => {
    expect(account({ ...entry, at: "output", fired: 26 })).toMatchObject({ missing: 0, uncalled: 4 });
    expect(imbalance(account({ ...entry, at: "output", fired: 26 }))).toBeNull();
  });

  it("also read a number of due firings that is summed over the sites", () => {
    expect(imbalance(account({ ...entry, due: 30 }))).toBeNull();
  });
});

describe("alignment", () => {
  it("matches targets by name", () => {
    const a = gptRun({ id: "a", title: "a", seed: 1, layers: 2, last: 20 }), b = gptRun({ id: "b", title: "b", seed: 2, layers: 3, last: 20 });
    const series = (run: typeof a) => run.series.find(one => one.name === "norm")!;
    const found = align(a, b, series(a), series(b));
    expect(found.onlyA).toEqual([]);
    expect(found.onlyB.every(name => name.startsWith("transformer.h.2."))).toBe(true);
    found.names.forEach((name, place) => {
      expect(a.targets[found.inA[place]!]).toBe(name);
      expect(b.targets[found.inB[place]!]).toBe(name);
    });
    const covered = rangesIn(found.inB, [[0, found.names.length]]).flatMap(([start, end]) => b.targets.slice(start, end));
    expect([...covered].sort()).toEqual([...found.names].sort());
  });

  it("divides cells without hiding what is missing", () => {
    expect(ratio(1, 4)).toBe(2);
    expect(ratio(0, 0)).toBe(0);
    expect(ratio(NaN, 1)).toBeNaN();
    expect(ratio(1, Infinity)).toBe(Infinity);
    expect(ratioText(ratio(0, 1))).toBe("zero in the first only");
    expect(ratioText(1)).toBe("× 2.00");
    expect(Array.from(largestOf(Float32Array.of(1, NaN, 3, Infinity), [0, 1], 2))).toEqual([3, Infinity]);
  });
});

describe("texts", () => {
  it("are safe in a table and on the page", () => {
    expect(field("=SUM(A1)")).toBe("'=SUM(A1)");
    expect(field('a"b,c')).toBe('"a""b,c"');
    expect(visible("\u202Eabc\u200b")).toBe("⟨202e⟩abc⟨200b⟩");
  });

  it("of pages are split into parts", () => {
    const page = "# TH1: a `b`\n\nOne\nline.\n- x\n- y\n  z\n\n```python\n# code\n\nf()\n```\n| a | b |\n";
    expect(blocksOf(page)).toEqual([
      { kind: "title", text: "TH1: a `b`" }, { kind: "paragraph", text: "One line." },
      { kind: "list", items: ["x", "y z"] }, { kind: "code", text: "# code\n\nf()" }, { kind: "code", text: "| a | b |" },
    ]);
    expect(piecesOf("see [this](javascript:alert(1)) and `code`").map(piece => piece.text).join("|")).toBe("see this) and |code");
  });
});
