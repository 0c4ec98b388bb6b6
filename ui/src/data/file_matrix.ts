import { bytesOf, type FileMatrix, LOWEST, magnitudes, NONFINITE, NOTHING } from "./file_data";
import type { Range } from "./source";

/** The most summaries of row ranges that are kept. */
const MOST_KEPT = 4096;

/** One series of a file. It answers for any rows and columns from the cells that the file holds. */
export class StoredMatrix {
  readonly first: number;
  readonly each: number;
  readonly columns: number;
  readonly ranges: Range[];
  private codes: Uint16Array;
  private table: Float32Array;
  private starts: number[] = [];
  private kept = new Map<string, Float32Array>();

  constructor(from: FileMatrix) {
    this.first = from.first;
    this.each = Math.max(1, from.each);
    this.columns = from.columns;
    this.ranges = from.ranges;
    const bytes = bytesOf(from.cells);
    this.codes = new Uint16Array(bytes.buffer, 0, bytes.length >> 1);
    this.table = magnitudes(from.low, from.high);
    let at = 0;
    for (const [start, end] of from.ranges) {
      this.starts.push(at);
      at += end - start;
    }
  }

  /** Return the row of a target, or -1 if the series does not have it. */
  rowOf(target: number): number {
    const place = this.ranges.findIndex(([start, end]) => start <= target && target < end);
    return place < 0 ? -1 : this.starts[place]! + target - this.ranges[place]![0];
  }

  /** Return the stored columns of one target. */
  row(target: number): Float32Array {
    return this.summary([target, target + 1], "maximum");
  }

  /** Write one row of a request to `into`. */
  fill(into: Float32Array, at: number, rows: Range, first: number, each: number, columns: number, of: "maximum" | "mean"): void {
    const stored = this.summary(rows, of);
    for (let column = 0; column < columns; column++) {
      const from = Math.floor((first + column * each - this.first) / this.each);
      const to = Math.max(from + 1, Math.ceil((first + (column + 1) * each - this.first) / this.each));
      into[at + column] = combine(stored, Math.max(0, from), Math.min(this.columns, to), of);
    }
  }

  /** Return each stored column, combined over the targets of a range. */
  private summary(rows: Range, of: "maximum" | "mean"): Float32Array {
    const key = `${of}${rows[0]}-${rows[1]}`;
    let found = this.kept.get(key);
    if (!found) {
      if (this.kept.size >= MOST_KEPT) this.kept.clear();
      this.kept.set(key, found = of === "maximum" ? this.largest(rows) : this.average(rows));
    }
    return found;
  }

  private largest(rows: Range): Float32Array {
    const best = new Uint16Array(this.columns), bad = new Uint8Array(this.columns);
    this.eachRow(rows, from => {
      for (let column = 0; column < this.columns; column++) {
        const code = this.codes[from + column]!;
        if (code === NONFINITE) bad[column] = 1;
        else if (code > best[column]!) best[column] = code;
      }
    });
    return Float32Array.from(best, (code, column) => this.table[bad[column] ? NONFINITE : code]!);
  }

  private average(rows: Range): Float32Array {
    const sum = new Float64Array(this.columns), count = new Uint32Array(this.columns);
    this.eachRow(rows, from => {
      for (let column = 0; column < this.columns; column++) {
        const code = this.codes[from + column]!;
        if (code === NOTHING) continue;
        count[column]!++;
        sum[column]! += code < LOWEST && code !== NONFINITE ? 0 : this.table[code]!;
      }
    });
    return Float32Array.from(sum, (total, column) => count[column] ? total / count[column]! : NaN);
  }

  private eachRow(rows: Range, see: (from: number) => void): void {
    this.ranges.forEach(([start, end], place) => {
      for (let target = Math.max(start, rows[0]); target < Math.min(end, rows[1]); target++) {
        see((this.starts[place]! + target - start) * this.columns);
      }
    });
  }
}

/** Combine cells. A cell that is not finite wins; cells with nothing do not count. */
export function combine(cells: Float32Array, from: number, to: number, of: "maximum" | "mean"): number {
  let best = NaN, sum = 0, count = 0;
  for (let at = from; at < to; at++) {
    const cell = cells[at]!;
    if (cell !== cell) continue;
    if (!(cell <= best)) best = cell;
    sum += cell;
    count++;
  }
  return of === "maximum" || best === Infinity ? best : count ? sum / count : NaN;
}
