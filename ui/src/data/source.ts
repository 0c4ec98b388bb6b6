// The contract between the user interface and its data. A server and a single file deliver the same shapes.

export interface RunHead { id: string; title: string; path: string; live: boolean }

/** A range of indices into `Run.targets`; the end is exclusive. */
export type Range = [number, number];

/** Single numbers. `every` is the number of steps between two records, if it is known. */
export interface Series { hook: string; name: string; at: string | null; ranges: Range[]; every?: number | null }

export interface Verdict {
  code: string; kind?: string | null; severity: string; sentence: string; evidence: string[]; remedy: string;
  step: number | null; target: string | null; rank?: number | null;
}

export interface Finding {
  code: string; severity: "error" | "warning" | "note"; message?: string | null; title?: string | null;
  evidence?: string | string[] | null; remedy?: string | null; hook?: string | null; target?: string | null;
  point?: string | null; step?: number | null; url?: string | null;
}

/** `skipped` is a number or a number for each reason. `due` counts steps or, summed over the sites, steps at sites. */
export interface LedgerEntry {
  hook: string; at: string; do: string; sites: number; due: number; fired: number; changed: number; failed: number;
  skipped: number | Record<string, number>; dormant: Record<string, number>; measured?: number | string | null;
}

export interface Suspect { kind?: string; point?: string; target?: string; why?: string; [field: string]: unknown }

export interface Flight { path: string; step: number; reason: string; suspects: Suspect[]; verdict: Verdict | null }

export interface HistogramSeries { hook: string; ranges: Range[] }

export interface Run extends RunHead {
  revision: string;
  first: number; last: number;
  sentence: string; tone: "healthy" | "sick" | "unknown";
  targets: string[];
  types: Record<string, string>;
  series: Series[];
  histograms: HistogramSeries[];
  verdicts: Verdict[]; findings: Finding[];
  /** the page about each code among them, as Markdown */
  pages: Record<string, string>;
  ledger: LedgerEntry[]; flights: Flight[];
  plan: { text: string; digest: string | null } | null;
  dropped: number;
}

export interface MatrixRequest {
  run: string; hook: string; name: string; rows: Range[]; first: number; each: number; columns: number;
  of: "maximum" | "mean";
}

export interface CurveRequest {
  run: string; hook: string; name: string; target: number; first: number; last: number; points: number;
}

export interface Curve { steps: number[]; low: (number | null)[]; high: (number | null)[]; nonfinite: number[] }

/** `range` is what the counts are summed over, if it is not the range that was asked for. */
export interface Histogram { steps: number[]; counts: number[][]; edges: number[]; range?: Range }

export interface TargetNumber {
  hook: string; name: string; count: number; nonfinite: number; minimum: number | null; maximum: number | null;
  mean: number | null; last: number | null; last_step: number;
}

export interface Difference {
  sentence: string; step: number | null; target: string | null; kind: string | null; equal: boolean | null;
}

export interface Change { run: string; last: number; revision: string; live: boolean }

export interface Source {
  /** Whether new steps may arrive. */
  readonly follows: boolean;
  runs(): Promise<RunHead[]>;
  run(id: string): Promise<Run>;
  matrix(request: MatrixRequest, signal?: AbortSignal): Promise<Float32Array>;
  curve(request: CurveRequest, signal?: AbortSignal): Promise<Curve>;
  histogram(run: string, hook: string, range: Range, signal?: AbortSignal): Promise<Histogram>;
  numbers(run: string, target: number): Promise<TargetNumber[]>;
  difference(a: string, b: string): Promise<Difference>;
  onChange(listener: (change: Change) => void): () => void;
  /** Tell whether the data can be reached now. */
  onConnection(listener: (connected: boolean) => void): () => void;
  /** The number of steps that one stored value covers at least, or 1 if each step is stored. */
  stepsPerValue(run: string, hook: string, name: string): number;
}

/** An error that says what happened and what to do. */
export class DataError extends Error {
  remedy: string;

  constructor(message: string, remedy: string) {
    super(message);
    this.remedy = remedy;
  }
}
