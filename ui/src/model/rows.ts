import type { Range } from "../data/source";
import type { Cover } from "./cover";
import { nameOf, nodeAt, pathOf, ROOT, type Tree } from "./tree";

/** A row of the map: a node of the tree with all targets below it, or the node's own target. */
export interface Row {
  key: string;
  /** How the address of the page names the row, see `rowNamed`. */
  id: string;
  node: number;
  label: string;
  /** Full name of the target or module. */
  name: string;
  level: number;
  ranges: Range[];
  /** The target, if the row stands for exactly one, or -1. */
  target: number;
  /** How many targets with data the row stands for. */
  covered: number;
  openable: boolean;
  open: boolean;
  /** The row shows only the module's own target, and its children are rows of their own. */
  itself: boolean;
}

export type IsOpen = (node: number, level: number) => boolean;

/** Maximum number of rows that are open at first. */
export const ROWS_AT_FIRST = 150;

/** List the rows below a node. Nodes without data are left out; a chain of single children is one row. */
export function listRows(tree: Tree, cover: Cover, inside: number, isOpen: IsOpen, most = Infinity): Row[] {
  const rows: Row[] = [];
  const top = through(tree, cover, inside);
  if (!hasBelow(tree, cover, top)) {
    if (cover.count(tree.start[top]!, tree.end[top]!)) rows.push(rowOf(tree, cover, top, nameOf(tree, top), 1, false));
    return rows;
  }
  const addBelow = (node: number, level: number) => {
    if (cover.has(tree.own[node]!)) rows.push(ownRow(tree, node, level));
    const path = pathOf(tree, node);
    for (let child = node + 1; child < tree.after[node]!; child = tree.after[child]!) {
      if (rows.length > most) return;
      if (!cover.count(tree.start[child]!, tree.end[child]!)) continue;
      const last = through(tree, cover, child);
      const label = labelOf(pathOf(tree, last), path);
      const open = hasBelow(tree, cover, last) && isOpen(last, level);
      rows.push(rowOf(tree, cover, last, label, level, open));
      if (open) addBelow(last, level + 1);
    }
  };
  addBelow(top, 1);
  return rows;
}

/** Return the deepest level that opens at most so many rows; level 1 is open in any case. */
export function levelAtFirst(tree: Tree, cover: Cover, inside: number, most = ROWS_AT_FIRST): number {
  let level = 1, before = -1;
  for (;;) {
    const next = level + 1;
    const found = listRows(tree, cover, inside, (_, at) => at < next, most).length;
    if (found > most || found === before) return level;
    before = found;
    level = next;
  }
}

/** List the targets themselves, without a tree. */
export function flatRows(tree: Tree, targets: number[]): Row[] {
  return targets.map(target => ({
    key: `=${target}`, id: `=${tree.targets[target]!}`, node: -1, label: tree.targets[target]!,
    name: tree.targets[target]!, level: 1, ranges: [[target, target + 1]], target, covered: 1, openable: false, open: false, itself: false,
  }));
}

/** Follow single children: a row `ln.weight` is better than a row `ln` with one row below it. */
function through(tree: Tree, cover: Cover, node: number): number {
  for (;;) {
    const total = cover.count(tree.start[node]!, tree.end[node]!);
    if (cover.has(tree.own[node]!)) return node;
    let only = -1;
    for (let child = node + 1; child < tree.after[node]!; child = tree.after[child]!) {
      const count = cover.count(tree.start[child]!, tree.end[child]!);
      if (count) {
        only = count === total ? child : -1;
        break;
      }
    }
    if (only < 0) return node;
    node = only;
  }
}

function hasBelow(tree: Tree, cover: Cover, node: number): boolean {
  const total = cover.count(tree.start[node]!, tree.end[node]!);
  return total > (cover.has(tree.own[node]!) ? 1 : 0);
}

function labelOf(path: string, above: string): string {
  const label = above ? path.slice(above.length) : path;
  return above && label.startsWith(".") ? label.slice(1) : label;
}

function rowOf(tree: Tree, cover: Cover, node: number, label: string, level: number, open: boolean): Row {
  const start = tree.start[node]!, end = tree.end[node]!;
  const openable = hasBelow(tree, cover, node), covered = cover.count(start, end);
  return {
    key: `${start}-${end}`, id: nameOf(tree, node), node, label, name: nameOf(tree, node), level, covered, openable, open,
    ranges: [[start, end]], target: openable ? -1 : cover.has(tree.own[node]!) ? tree.own[node]! : -1, itself: false,
  };
}

function ownRow(tree: Tree, node: number, level: number): Row {
  const own = tree.own[node]!;
  return {
    key: `=${own}`, id: `=${nameOf(tree, node)}`, node, label: node === ROOT ? ". (root)" : "(itself)", name: nameOf(tree, node), level, covered: 1,
    ranges: [[own, own + 1]], target: own, openable: false, open: false, itself: true,
  };
}

/** Return the row that an address names: `=name` is the target itself, `name` includes all targets below it. */
export function rowNamed(tree: Tree, cover: Cover, id: string): Row | null {
  if (id.startsWith("=")) {
    const target = tree.targets.indexOf(id.slice(1));
    return target < 0 ? null : flatRows(tree, [target])[0]!;
  }
  const node = nodeAt(tree, id);
  return node < 0 ? null : rowOf(tree, cover, node, nameOf(tree, node), 1, false);
}
