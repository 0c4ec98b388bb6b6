import type { Range, Run, Series } from "../data/source";
import { Cover } from "./cover";

/** The targets of two runs, matched by name, in the order of the first run. */
export interface Alignment {
  /** Names that both runs have in the series. */
  names: string[];
  /** Index of each common name in the first and in the second run. */
  inA: Int32Array;
  inB: Int32Array;
  onlyA: string[];
  onlyB: string[];
}

export function align(a: Run, b: Run, seriesA: Series, seriesB: Series): Alignment {
  const coverA = new Cover(a.targets.length, seriesA.ranges), coverB = new Cover(b.targets.length, seriesB.ranges);
  const places = new Map(coverB.list().map(target => [b.targets[target]!, target]));
  const names: string[] = [], inA: number[] = [], inB: number[] = [], onlyA: string[] = [], seen = new Set<string>();
  for (const target of coverA.list()) {
    const name = a.targets[target]!, other = places.get(name);
    if (other === undefined) onlyA.push(name);
    else if (!seen.has(name)) {
      seen.add(name);
      names.push(name);
      inA.push(target);
      inB.push(other);
    }
  }
  return {
    names, inA: Int32Array.from(inA), inB: Int32Array.from(inB), onlyA, onlyB: [...places.keys()].filter(name => !seen.has(name)),
  };
}

/** Return the ranges in a run that hold exactly the common targets of a row. */
export function rangesIn(places: Int32Array, ranges: Range[]): Range[] {
  const found = ranges.flatMap(([start, end]) => Array.from(places.subarray(start, end))).sort((a, b) => a - b);
  const joined: Range[] = [];
  for (const place of found) {
    const last = joined[joined.length - 1];
    if (last && last[1] === place) last[1]++;
    else joined.push([place, place + 1]);
  }
  return joined;
}

/** Return log2(b / a) of two cells. Nothing on one side is nothing; a cell that is not finite stays visible. */
export function ratio(a: number, b: number): number {
  if (a !== a || b !== b) return NaN;
  if (a === Infinity || b === Infinity) return Infinity;
  if (a === b) return 0;
  return Math.max(-FARTHEST, Math.min(FARTHEST, Math.log2(b / a)));
}

/** A number divided by zero is shown as this many doublings, not as a cell that is not finite. */
export const FARTHEST = 60;

/** Combine the answers for several ranges of one row with the largest magnitude. */
export function largestOf(cells: Float32Array, rows: number[], columns: number): Float32Array {
  const made = new Float32Array(columns).fill(NaN);
  for (const row of rows) {
    for (let column = 0; column < columns; column++) {
      const cell = cells[row * columns + column]!;
      if (cell === cell && !(cell <= made[column]!)) made[column] = cell;
    }
  }
  return made;
}

/** Say in words how a ratio reads. */
export function ratioText(cell: number): string {
  if (cell !== cell) return "not recorded in both";
  if (cell === Infinity) return "not finite in one of them";
  if (cell === -Infinity) return "loading";
  if (Math.abs(cell) < 0.005) return "equal";
  if (Math.abs(cell) >= FARTHEST) return cell > 0 ? "zero in the first only" : "zero in the second only";
  const times = 2 ** Math.abs(cell);
  return `${cell > 0 ? "×" : "÷"} ${times < 10 ? times.toPrecision(3) : times < 1e4 ? Math.round(times) : times.toExponential(1)}`;
}

