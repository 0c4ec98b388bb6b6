import type { Curve, Difference, Range, Run } from "./source";

// What a report file holds. See FileSource for the reading side.

/** Cells are base64 of little-endian uint16, with one row for each target of `ranges`. */
export interface FileMatrix {
  hook: string; name: string; first: number; each: number; columns: number; ranges: Range[]; low: number; high: number;
  cells: string;
}

export interface FileCurve extends Curve { hook: string; name: string; target: number }

export interface FileHistogram {
  hook: string; blocks: { range: Range; steps: number[]; counts: number[][] }[]; edges: number[];
}

export interface FileRun extends Run { matrices: FileMatrix[]; curves: FileCurve[]; histogramData: FileHistogram[] }

export interface FileData { runs: FileRun[]; differences: { a: string; b: string; difference: Difference }[] }

/** Codes of a cell. A higher code stands for the logarithm of a magnitude. */
export const NOTHING = 0, NONFINITE = 1, ZERO = 2, LOWEST = 3, HIGHEST = 65535;

/** Return the magnitude of each code of a matrix, as a cell of the page: NaN is nothing, infinity is not finite. */
export function magnitudes(low: number, high: number): Float32Array {
  const table = new Float32Array(HIGHEST + 1);
  const span = Math.log(high / low) || 0;
  table[NOTHING] = NaN;
  table[NONFINITE] = Infinity;
  for (let code = LOWEST; code <= HIGHEST; code++) {
    table[code] = low * Math.exp(span * (code - LOWEST) / (HIGHEST - LOWEST));
  }
  return table;
}

export function bytesOf(base64: string): Uint8Array<ArrayBuffer> {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/** Decode the content of the data element: base64 of gzip of JSON. */
export async function readFileData(text: string): Promise<FileData> {
  const packed = new Blob([bytesOf(text.trim())]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(packed).text()) as FileData;
}
