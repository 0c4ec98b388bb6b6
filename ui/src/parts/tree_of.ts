import { useMemo } from "preact/hooks";
import type { Run } from "../data/source";
import { makeTree, type Tree } from "../model/tree";

const made = new WeakMap<string[], Tree>();

/** Return the tree of a run's targets. Each list of targets has one tree, however many parts show it. */
export function useTree(run: Run): Tree {
  return useMemo(() => {
    let tree = made.get(run.targets);
    if (!tree) made.set(run.targets, tree = makeTree(run.targets));
    return tree;
  }, [run.targets]);
}
