import { type FileCurve, type FileData, type FileRun } from "./file_data";
import { StoredMatrix } from "./file_matrix";
import type {
  Curve, CurveRequest, Difference, Histogram, MatrixRequest, Range, Run, RunHead, Source, TargetNumber,
} from "./source";
import { DataError } from "./source";

/** Reads runs from the data inside a report file. */
export class FileSource implements Source {
  readonly follows = false;
  private matrices = new Map<string, StoredMatrix>();
  private data: Promise<FileData>;
  private read: FileData | null = null;

  constructor(data: FileData | Promise<FileData>) {
    this.data = Promise.resolve(data).then(found => this.read = found);
  }

  async runs(): Promise<RunHead[]> {
    return (await this.data).runs.map(({ id, title, path, live }) => ({ id, title, path, live }));
  }

  async run(id: string): Promise<Run> {
    return this.stored(id);
  }

  async matrix(request: MatrixRequest): Promise<Float32Array> {
    const { rows, first, each, columns, of } = request;
    const cells = new Float32Array(rows.length * columns).fill(NaN);
    const matrix = await this.matrixOf(request.run, request.hook, request.name);
    if (matrix) rows.forEach((range, row) => matrix.fill(cells, row * columns, range, first, each, columns, of));
    else await this.fillFromCurves(request, cells);
    return cells;
  }

  async curve(request: CurveRequest): Promise<Curve> {
    const { hook, name, target, first, last, points } = request;
    const exact = await this.exactCurve(request.run, hook, name, target);
    if (exact) return thinned(exact, first, last, points);
    const matrix = await this.matrixOf(request.run, hook, name);
    if (!matrix || matrix.rowOf(target) < 0) return { steps: [], low: [], high: [], nonfinite: [] };
    return thinned(curveOf(matrix, target), first, last, points);
  }

  async histogram(run: string, hook: string, range: Range): Promise<Histogram> {
    const stored = (await this.stored(run)).histogramData.find(one => one.hook === hook);
    // Only sums over blocks are stored, so the answer is the smallest block around the range.
    const around = stored?.blocks.filter(({ range: [start, end] }) => start <= range[0] && range[1] <= end)
      .sort((a, b) => (a.range[1] - a.range[0]) - (b.range[1] - b.range[0]));
    const block = around?.[0];
    return { steps: block?.steps ?? [], counts: block?.counts ?? [], edges: stored?.edges ?? [], ...(block ? { range: block.range } : {}) };
  }

  async numbers(run: string, target: number): Promise<TargetNumber[]> {
    const found: TargetNumber[] = [];
    for (const { hook, name, ranges } of (await this.stored(run)).series) {
      if (!ranges.some(([start, end]) => start <= target && target < end)) continue;
      const curve = await this.curve({ run, hook, name, target, first: -Infinity, last: Infinity, points: Infinity });
      found.push(summarise(hook, name, curve));
    }
    return found;
  }

  async difference(a: string, b: string): Promise<Difference> {
    const found = (await this.data).differences.find(one => (one.a === a && one.b === b) || (one.a === b && one.b === a));
    if (found) return found.difference;
    return { sentence: "This file holds no comparison of these two runs.", step: null, target: null, kind: null, equal: null };
  }

  onChange(): () => void {
    return () => undefined;
  }

  onConnection(): () => void {
    return () => undefined;
  }

  stepsPerValue(run: string, hook: string, name: string): number {
    const stored = this.read?.runs.find(one => one.id === run);
    return stored?.matrices.find(one => one.hook === hook && one.name === name)?.each ?? 1;
  }

  private async stored(id: string): Promise<FileRun> {
    const found = (await this.data).runs.find(one => one.id === id);
    if (!found) throw new DataError(`this file has no run ${id}`, "choose another run");
    return found;
  }

  private async matrixOf(run: string, hook: string, name: string): Promise<StoredMatrix | null> {
    const key = JSON.stringify([run, hook, name]);
    const ready = this.matrices.get(key);
    if (ready) return ready;
    const stored = (await this.stored(run)).matrices.find(one => one.hook === hook && one.name === name);
    if (!stored) return null;
    const made = new StoredMatrix(stored);
    this.matrices.set(key, made);
    return made;
  }

  private async exactCurve(run: string, hook: string, name: string, target: number): Promise<FileCurve | undefined> {
    return (await this.stored(run)).curves.find(one => one.hook === hook && one.name === name && one.target === target);
  }

  /** A series may be stored as curves only, such as the loss. */
  private async fillFromCurves({ run, hook, name, rows, first, each, columns }: MatrixRequest, cells: Float32Array): Promise<void> {
    for (const curve of (await this.stored(run)).curves) {
      if (curve.hook !== hook || curve.name !== name) continue;
      rows.forEach(([start, end], row) => {
        if (start > curve.target || curve.target >= end) return;
        const see = (step: number, value: number) => {
          const column = Math.floor((step - first) / each);
          if (column < 0 || column >= columns) return;
          const at = row * columns + column;
          if (!(value <= cells[at]!)) cells[at] = value;
        };
        curve.steps.forEach((step, i) => {
          const low = curve.low[i], high = curve.high[i];
          if (low != null && high != null) see(step, Math.max(Math.abs(low), Math.abs(high)));
        });
        curve.nonfinite.forEach(step => see(step, Infinity));
      });
    }
  }
}

function curveOf(matrix: StoredMatrix, target: number): Curve {
  const curve: Curve = { steps: [], low: [], high: [], nonfinite: [] };
  matrix.row(target).forEach((cell, column) => {
    const step = matrix.first + column * matrix.each;
    if (cell !== cell) return;
    const value = Number.isFinite(cell) ? cell : null;
    curve.steps.push(step);
    curve.low.push(value);
    curve.high.push(value);
    if (value === null) curve.nonfinite.push(step);
  });
  return curve;
}

/** Cut a curve to some steps, and join neighbours until it has at most `points` points. */
export function thinned(curve: Curve, first: number, last: number, points: number): Curve {
  const kept = [...curve.steps.keys()].filter(i => first <= curve.steps[i]! && curve.steps[i]! <= last);
  const each = Math.max(1, Math.ceil(kept.length / points));
  const made: Curve = { steps: [], low: [], high: [], nonfinite: curve.nonfinite.filter(step => first <= step && step <= last) };
  for (let at = 0; at < kept.length; at += each) {
    const some = kept.slice(at, at + each);
    const lows = some.map(i => curve.low[i]).filter(value => value != null);
    const highs = some.map(i => curve.high[i]).filter(value => value != null);
    made.steps.push(curve.steps[some[0]!]!);
    made.low.push(lows.length ? Math.min(...lows) : null);
    made.high.push(highs.length ? Math.max(...highs) : null);
  }
  return made;
}

function summarise(hook: string, name: string, curve: Curve): TargetNumber {
  const there = [...curve.steps.keys()].filter(i => curve.low[i] != null);
  const middle = (i: number) => (curve.low[i]! + curve.high[i]!) / 2;
  const final = curve.steps.length - 1;
  return {
    hook, name, count: curve.steps.length, nonfinite: curve.nonfinite.length,
    minimum: there.length ? there.reduce((least, i) => Math.min(least, curve.low[i]!), Infinity) : null,
    maximum: there.length ? there.reduce((most, i) => Math.max(most, curve.high[i]!), -Infinity) : null,
    mean: there.length ? there.reduce((sum, i) => sum + middle(i), 0) / there.length : null,
    last: final >= 0 && curve.low[final] != null ? middle(final) : null,
    last_step: final >= 0 ? curve.steps[final]! : -1,
  };
}

