// The tree of targets. The names give the tree: `blocks.3.attn` is below `blocks.3`. Targets below each module are
// contiguous, so each node is a range of targets. Nodes are numbered in the order of the list, parents first, and
// stored in flat arrays, because a run may have tens of thousands of targets.

export interface Tree {
  /** Names of the targets. */
  targets: string[];
  /** Number of nodes; the root is node 0. */
  count: number;
  /** Length of the node's path, which is the start of the names of its targets. */
  length: Int32Array;
  start: Int32Array;
  end: Int32Array;
  /** The target with the name of the node itself, or -1. */
  own: Int32Array;
  parent: Int32Array;
  /** The first node that is not below this node. */
  after: Int32Array;
}

export const ROOT = 0;

export function isSeparator(code: number): boolean {
  return code === 46 || code === 58; // "." and ":"
}

/** Return the end of each part of a name: `a.b:c` gives the ends of `a`, `a.b` and `a.b:c`. */
export function partEnds(name: string): number[] {
  const ends: number[] = [];
  for (let i = 1; i < name.length; i++) if (isSeparator(name.charCodeAt(i))) ends.push(i);
  ends.push(name.length);
  return ends;
}

export function makeTree(targets: string[]): Tree {
  const length = [0], start = [0], end = [targets.length], own = [-1], parent = [-1], after = [0];
  const open = [ROOT];
  const close = (depth: number, place: number) => {
    while (open.length > depth) {
      const node = open.pop()!;
      end[node] = place;
      after[node] = length.length;
    }
  };
  let before = "";
  targets.forEach((name, place) => {
    if (name === ".") {
      close(1, place);
      own[ROOT] = place;
      return;
    }
    const ends = partEnds(name);
    let same = 0;
    while (same < name.length && same < before.length && name.charCodeAt(same) === before.charCodeAt(same)) same++;
    let depth = 1;
    while (depth < open.length && depth <= ends.length && ends[depth - 1]! <= same && length[open[depth]!] === ends[depth - 1]) depth++;
    // The same name twice is two nodes, so that no target is lost.
    if (depth > ends.length && own[open[ends.length]!] !== -1) depth = ends.length;
    close(depth, place);
    for (; depth <= ends.length; depth++) {
      parent.push(open[open.length - 1]!);
      open.push(length.length);
      length.push(ends[depth - 1]!);
      start.push(place);
      end.push(place + 1);
      own.push(-1);
      after.push(0);
    }
    own[open[open.length - 1]!] = place;
    before = name;
  });
  close(0, targets.length);
  return {
    targets, count: length.length, length: Int32Array.from(length), start: Int32Array.from(start), end: Int32Array.from(end),
    own: Int32Array.from(own), parent: Int32Array.from(parent), after: Int32Array.from(after),
  };
}

export function pathOf(tree: Tree, node: number): string {
  return node === ROOT ? "" : tree.targets[tree.start[node]!]!.slice(0, tree.length[node]!);
}

/** Return the node with this path; the root's path is "." or "". */
export function nodeAt(tree: Tree, path: string): number {
  if (path === "." || path === "") return ROOT;
  for (let node = 1; node < tree.count; node++) {
    if (tree.length[node] === path.length && tree.targets[tree.start[node]!]!.startsWith(path)) return node;
  }
  return -1;
}

/** Return the nodes from below the root to this node. */
export function trail(tree: Tree, node: number): number[] {
  const nodes: number[] = [];
  for (let at = node; at > ROOT; at = tree.parent[at]!) nodes.unshift(at);
  return nodes;
}

export function nameOf(tree: Tree, node: number): string {
  return node === ROOT ? "." : pathOf(tree, node);
}
