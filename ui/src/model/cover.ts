import type { Range } from "../data/source";

/** Counts, for any range of targets, how many of them are covered, for example by a series. */
export class Cover {
  readonly total: number;
  private before: Int32Array;

  constructor(targets: number, ranges: Range[]) {
    const change = new Int32Array(targets + 1);
    for (const [start, end] of ranges) {
      const from = Math.max(0, start), to = Math.min(targets, end);
      if (from >= to) continue;
      change[from]!++;
      change[to]!--;
    }
    this.before = new Int32Array(targets + 1);
    let open = 0;
    for (let target = 0; target < targets; target++) {
      open += change[target]!;
      this.before[target + 1] = this.before[target]! + (open > 0 ? 1 : 0);
    }
    this.total = this.before[targets]!;
  }

  count(start: number, end: number): number {
    return this.before[end]! - this.before[start]!;
  }

  has(target: number): boolean {
    return target >= 0 && this.count(target, target + 1) > 0;
  }

  /** Return the covered targets in order. */
  list(): number[] {
    const found: number[] = [];
    for (let target = 0; target + 1 < this.before.length; target++) if (this.has(target)) found.push(target);
    return found;
  }

  /** Return the target of the first covered place, or -1. */
  first(): number {
    return this.before.findIndex((_, target) => target + 1 < this.before.length && this.has(target));
  }
}
