// The window of steps on screen, and the cells that fill it. The end of a window is exclusive.

export interface Window { from: number; to: number }

/** Columns of one tile. Cells are asked for and kept in tiles, so that panning uses them again. */
export const TILE = 128;

/** Maximum number of cells across a window; a server answers at most 2,000 columns. */
export const MOST_CELLS = 1536;

export function whole(first: number, last: number): Window {
  return { from: first, to: Math.max(first + 1, last + 1) };
}

/** Keep a window inside the run, and at least `least` steps wide. */
export function bounded(window: Window, first: number, last: number, least = 4): Window {
  const all = whole(first, last), most = all.to - all.from;
  const span = Math.min(most, Math.max(Math.min(least, most), window.to - window.from));
  const from = Math.min(Math.max(window.from, all.from), all.to - span);
  return { from, to: from + span };
}

/** Zoom so that the step `at` stays where it is. A factor below 1 zooms in. */
export function zoomed(window: Window, at: number, factor: number): Window {
  return { from: at - (at - window.from) * factor, to: at + (window.to - at) * factor };
}

export function moved(window: Window, steps: number): Window {
  return { from: window.from + steps, to: window.to + steps };
}

/** After new steps have arrived, a window that showed the end goes on to show the end. */
export function followed(window: Window, before: number, last: number): Window {
  return window.to >= before + 1 ? moved(window, last - before) : window;
}

/** Return the level whose cells are the finest that are at least one pixel wide. */
export function levelFor(window: Window, width: number, stride: number): number {
  const least = (window.to - window.from) / Math.max(1, Math.min(width, MOST_CELLS));
  let level = 0;
  while (stepsPerCell(level, stride) < least * (1 - 1e-9)) level++;
  return level;
}

/**
 * Return the steps of a cell: those between two records at level 0, and a power of two at higher levels. Cells begin at
 * multiples of their width, so a server can answer from summaries, which have widths of powers of two.
 */
export function stepsPerCell(level: number, stride: number): number {
  return level ? 2 ** (Math.floor(Math.log2(stride)) + level) : stride;
}

/** Return the first step of the cell that has a step. */
export function cellStart(step: number, each: number): number {
  return Math.floor(step / each) * each;
}

/** Return the tiles that a window touches: the first and the one after the last. */
export function tilesOf(window: Window, each: number): [number, number] {
  return [Math.floor(window.from / (each * TILE)), Math.ceil(window.to / (each * TILE))];
}
