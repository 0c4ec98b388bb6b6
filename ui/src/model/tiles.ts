import type { Range } from "../data/source";
import { stepsPerCell, TILE, tilesOf, type Window } from "./steps";

/** A pixel whose cell has not arrived yet. NaN means that nothing was recorded, which is known. */
export const WAITING = -Infinity;

export interface RowRequest { key: string; ranges: Range[] }

export interface CellRequest { rows: RowRequest[]; first: number; each: number; columns: number }

/** Answers with row-major cells. */
export type Fetch = (request: CellRequest, signal: AbortSignal) => Promise<Float32Array>;

interface Tile { cells: Float32Array; stale: boolean }

/** The most cells that are kept. */
const MOST_KEPT = 8_000_000;

/** Keeps the cells of one series by row, level and tile. Tile 0 begins at step 0, wherever the run begins. */
export class Tiles {
  readonly stride: number;
  private rows = new Map<string, Map<number, Map<number, Tile>>>();
  private kept = 0;
  private end: number;

  constructor(stride: number, last: number) {
    this.stride = stride;
    this.end = last + 1;
  }

  /** Mark what new steps change. Stale cells stay on screen until others arrive. */
  grow(before: number, last: number): void {
    this.end = last + 1;
    for (const levels of this.rows.values()) {
      for (const [level, tiles] of levels) {
        const steps = stepsPerCell(level, this.stride) * TILE;
        for (const [place, tile] of tiles) if ((place + 1) * steps > before) tile.stale = true;
      }
    }
  }

  /** Mark everything, after the past has changed. */
  spoil(): void {
    for (const levels of this.rows.values()) {
      for (const tiles of levels.values()) for (const tile of tiles.values()) tile.stale = true;
    }
  }

  /** Return the request for the cells that are missing in a window, or null if there are none. */
  missing(rows: RowRequest[], window: Window, level: number): CellRequest | null {
    const each = stepsPerCell(level, this.stride);
    const [from, to] = tilesOf({ from: window.from, to: Math.min(window.to, this.end) }, each);
    let start = to, stop = from;
    const lacking = rows.filter(row => {
      const tiles = this.rows.get(row.key)?.get(level);
      let lacks = false;
      for (let place = from; place < to; place++) {
        const tile = tiles?.get(place);
        if (tile && !tile.stale) continue;
        lacks = true;
        start = Math.min(start, place);
        stop = Math.max(stop, place + 1);
      }
      return lacks;
    });
    if (!lacking.length) return null;
    const first = start * TILE * each;
    const columns = Math.min((stop - start) * TILE, Math.ceil((this.end - first) / each));
    return { rows: lacking, first, each, columns: Math.max(1, columns) };
  }

  /** Keep the answer to a request. */
  put(request: CellRequest, level: number, cells: Float32Array): void {
    const place = Math.round(request.first / (request.each * TILE));
    request.rows.forEach((row, number) => {
      const tiles = this.tilesAt(row.key, level);
      for (let column = 0; column < request.columns; column += TILE) {
        const at = number * request.columns + column;
        // The run may grow into the rest of the tile, so nothing is known about it.
        const made = new Float32Array(TILE).fill(WAITING);
        made.set(cells.subarray(at, at + Math.min(TILE, request.columns - column)));
        if (!tiles.has(place + column / TILE)) this.kept += TILE;
        tiles.set(place + column / TILE, { cells: made, stale: false });
      }
    });
    this.forget();
  }

  /** Fill one pixel row with the best cells at hand: the wanted level, then coarser ones, then finer ones. */
  compose(key: string, window: Window, level: number, into: Float32Array): void {
    into.fill(WAITING);
    const levels = this.rows.get(key);
    if (!levels) return;
    this.rows.delete(key); // the row used last is forgotten last
    this.rows.set(key, levels);
    const order = [...levels.keys()].sort((a, b) => distance(a, level) - distance(b, level));
    let waiting = into.length;
    for (const one of order) {
      if (waiting <= 0) return;
      waiting -= this.composeFrom(levels.get(one)!, stepsPerCell(one, this.stride), window, into);
    }
  }

  private composeFrom(tiles: Map<number, Tile>, each: number, window: Window, into: Float32Array): number {
    const perPixel = (window.to - window.from) / into.length, finer = each < perPixel;
    let filled = 0;
    for (let x = 0; x < into.length; x++) {
      if (into[x] !== WAITING) continue;
      if (finer) {
        const from = Math.floor((window.from + x * perPixel) / each);
        const to = Math.max(from + 1, Math.ceil((window.from + (x + 1) * perPixel) / each));
        let best = NaN, known = true;
        for (let cell = from; cell < to && known; cell++) {
          const tile = tiles.get(Math.floor(cell / TILE));
          if (!tile) known = false;
          else {
            const value = tile.cells[cell - Math.floor(cell / TILE) * TILE]!;
            if (value === value && value !== WAITING && !(Math.abs(value) <= Math.abs(best))) best = value;
          }
        }
        if (!known) continue;
        into[x] = best;
      } else {
        const cell = Math.floor((window.from + (x + 0.5) * perPixel) / each);
        const place = Math.floor(cell / TILE), tile = tiles.get(place);
        if (!tile) continue;
        into[x] = tile.cells[cell - place * TILE]!;
      }
      if (into[x] !== WAITING) filled++;
    }
    return filled;
  }

  private tilesAt(key: string, level: number): Map<number, Tile> {
    let levels = this.rows.get(key);
    if (!levels) this.rows.set(key, levels = new Map());
    let tiles = levels.get(level);
    if (!tiles) levels.set(level, tiles = new Map());
    return tiles;
  }

  private forget(): void {
    for (const [key, levels] of this.rows) {
      if (this.kept <= MOST_KEPT) return;
      for (const tiles of levels.values()) this.kept -= tiles.size * TILE;
      this.rows.delete(key);
    }
  }
}

/** The wanted level is best, then coarser levels, then finer ones. */
function distance(level: number, wanted: number): number {
  return level >= wanted ? level - wanted : 100 + wanted - level;
}
