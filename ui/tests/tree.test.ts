import { describe, expect, it } from "vitest";
import { gptTargets } from "../fixtures/gpt";
import { randomOf } from "../fixtures/random";
import { hostileRun, largeRun } from "../fixtures/small";
import { Cover } from "../src/model/cover";
import { levelAtFirst, listRows, rowNamed, type Row, ROWS_AT_FIRST } from "../src/model/rows";
import { makeTree, nameOf, nodeAt, partEnds, pathOf, ROOT, trail, type Tree } from "../src/model/tree";

function check(tree: Tree): void {
  for (let node = 1; node < tree.count; node++) {
    const parent = tree.parent[node]!;
    expect(tree.start[node]!).toBeGreaterThanOrEqual(tree.start[parent]!);
    expect(tree.end[node]!).toBeLessThanOrEqual(tree.end[parent]!);
    expect(tree.after[node]!).toBeGreaterThan(node);
    const path = pathOf(tree, node);
    for (let target = tree.start[node]!; target < tree.end[node]!; target++) {
      expect(tree.targets[target] === path || tree.targets[target]!.startsWith(path)).toBe(true);
    }
  }
  const owned = new Set(Array.from(tree.own).filter(target => target >= 0));
  expect(owned.size).toBe(tree.targets.length);
}

const all = (count: number) => new Cover(count, [[0, count]]);
const labels = (rows: Row[]) => rows.map(row => `${" ".repeat(row.level - 1)}${row.label}${row.covered > 1 ? ` ${row.covered}` : ""}`);

describe("tree", () => {
  it("splits names at both separators", () => {
    expect(partEnds("a.bc:d")).toEqual([1, 4, 6]);
    expect(partEnds(".hidden")).toEqual([7]);
  });

  it("gives each node the range of the targets below it", () => {
    check(makeTree(gptTargets(3).targets));
    check(makeTree(hostileRun().targets));
    const tree = makeTree([".", "a", "a.x", "a.y:t", "b.z"]);
    const a = nodeAt(tree, "a");
    expect([tree.start[a], tree.end[a], tree.own[a]]).toEqual([1, 4, 1]);
    expect(tree.own[ROOT]).toBe(0);
    expect(trail(tree, nodeAt(tree, "a.y:t")).map(node => nameOf(tree, node))).toEqual(["a", "a.y", "a.y:t"]);
  });

  it("keeps targets whose modules are not contiguous or whose names repeat", () => {
    for (const targets of [["a.x", "b", "a.y"], ["a", "a", "a.b", "a"], ["a.b", "a"], ["x", "."], [], [""]]) check(makeTree(targets));
  });

  it("finds a module's own target after the targets below it", () => {
    const tree = makeTree(["a.x", "a.y", "a"]);
    expect(tree.own[nodeAt(tree, "a")]).toBe(2);
    expect(tree.end[nodeAt(tree, "a")]).toBe(3);
  });

  it("agrees with a slow tree on random names", () => {
    const random = randomOf(3);
    for (let round = 0; round < 40; round++) {
      const names = new Set<string>();
      for (let i = 0; i < 30; i++) names.add(Array.from({ length: 1 + Math.floor(random() * 4) }, () => "abc"[Math.floor(random() * 3)]).join("."));
      const targets = [...names].sort((a, b) => a.split(".").join("\u0000") < b.split(".").join("\u0000") ? -1 : 1), tree = makeTree(targets);
      check(tree);
      const prefixes = new Set(targets.flatMap(name => name.split(".").map((_, i, parts) => parts.slice(0, i + 1).join("."))));
      expect(tree.count - 1).toBe(prefixes.size);
      for (const prefix of prefixes) {
        const node = nodeAt(tree, prefix), below = targets.filter(name => name === prefix || name.startsWith(`${prefix}.`));
        expect(targets.slice(tree.start[node], tree.end[node])).toEqual(below);
      }
    }
  });

  it("is quick for 45,000 targets", () => {
    const { targets } = largeRun("large", 45_000, 10, 1), begin = process.cpuUsage();
    const tree = makeTree(targets), cover = all(targets.length);
    const level = levelAtFirst(tree, cover, ROOT), rows = listRows(tree, cover, ROOT, (_, at) => at < level);
    // Time of the processor, because other programs may have the machine.
    expect(process.cpuUsage(begin).user / 1000).toBeLessThan(1000);
    expect(rows.length).toBeGreaterThan(1);
    expect(listRows(tree, cover, ROOT, () => true).filter(row => row.target >= 0)).toHaveLength(45_000);
  });
});

describe("rows", () => {
  const targets = ["model.a.x", "model.a.y", "model.b.x", "model.c", "model.c.x"];
  const tree = makeTree(targets);

  it("joins single children and leaves out what has no data", () => {
    expect(labels(listRows(tree, all(5), ROOT, () => false))).toEqual(["a 2", "b.x", "c 2"]);
    expect(labels(listRows(tree, new Cover(5, [[0, 1], [4, 5]]), ROOT, () => true))).toEqual(["a.x", "c.x"]);
    expect(listRows(tree, new Cover(5, []), ROOT, () => true)).toEqual([]);
  });

  it("shows a module's own numbers and its children", () => {
    expect(labels(listRows(tree, all(5), ROOT, () => true))).toEqual(["a 2", " x", " y", "b.x", "c 2", " (itself)", " x"]);
    expect(listRows(tree, all(5), ROOT, () => true).at(-2)).toMatchObject({ target: 3, id: "=model.c", ranges: [[3, 4]] });
  });

  it("opens the deepest level with at most so many rows", () => {
    const gpt = makeTree(gptTargets(12).targets), cover = all(gpt.targets.length);
    const level = levelAtFirst(gpt, cover, ROOT), at = (deep: number) => listRows(gpt, cover, ROOT, (_, one) => one < deep).length;
    expect(at(level)).toBeLessThanOrEqual(ROWS_AT_FIRST);
    expect(at(level + 1)).toBeGreaterThan(ROWS_AT_FIRST);
    expect(listRows(makeTree([]), all(0), ROOT, (_, at) => at < levelAtFirst(makeTree([]), all(0), ROOT))).toEqual([]);
  });

  it("finds the row that an address names", () => {
    expect(rowNamed(tree, all(5), "=model.c")).toMatchObject({ target: 3 });
    expect(rowNamed(tree, all(5), "model.c")).toMatchObject({ target: -1, covered: 2 });
    expect(rowNamed(tree, all(5), "model.a.x")).toMatchObject({ target: 0 });
    expect(rowNamed(tree, all(5), "nowhere")).toBeNull();
  });

  it("covers each target in exactly one row that cannot be opened", () => {
    const random = randomOf(8), big = makeTree(gptTargets(4).targets);
    for (let round = 0; round < 30; round++) {
      const covered = big.targets.map((_, place) => [place, place + 1] as [number, number]).filter(() => random() < 0.4);
      const cover = new Cover(big.targets.length, covered);
      const closed = listRows(big, cover, ROOT, () => random() < 0.6).filter(row => !row.open);
      const seen = closed.flatMap(row => row.ranges.flatMap(([start, end]) => cover.list().filter(target => start <= target && target < end)));
      expect(seen.sort((x, y) => x - y)).toEqual(cover.list());
    }
  });
});
