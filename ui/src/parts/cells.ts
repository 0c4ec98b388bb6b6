import { useEffect, useRef, useState } from "preact/hooks";
import { levelFor, whole, type Window } from "../model/steps";
import { type CellRequest, type Fetch, type RowRequest, Tiles } from "../model/tiles";

/** Milliseconds without movement before finer cells are asked for. */
const PAUSE = 50;
/** Columns of the whole run that give the range of the colours. */
export const SURVEY = 256;

interface Wanted { rows: RowRequest[]; window: Window; level: number }

/** Asks for the cells that are on screen, one request at a time, and drops requests that are out of date. */
export class CellLoader {
  readonly tiles: Tiles;
  error: unknown = null;
  busy = false;
  private wanted: Wanted[] = [];
  private now: { stop: AbortController; level: number } | null = null;
  private timer = 0;
  private fetch: Fetch;
  private changed: () => void;

  constructor(tiles: Tiles, fetch: Fetch, changed: () => void) {
    this.tiles = tiles;
    this.fetch = fetch;
    this.changed = changed;
  }

  /** Say what is on screen, the most urgent part first. */
  want(wanted: Wanted[], soon: boolean): void {
    this.wanted = wanted;
    this.error = null;
    if (this.now && wanted.every(one => one.level !== this.now!.level)) {
      this.now.stop.abort();
      this.now = null;
    }
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.next(), soon ? 0 : PAUSE);
  }

  close(): void {
    clearTimeout(this.timer);
    this.wanted = [];
    this.now?.stop.abort();
  }

  retry(): void {
    this.error = null;
    this.next();
  }

  private next(): void {
    if (this.now || this.error) return;
    for (const { rows, window, level } of this.wanted) {
      const request = this.tiles.missing(rows, window, level);
      if (!request) continue;
      void this.load(request, level);
      return;
    }
    if (this.busy) {
      this.busy = false;
      this.changed();
    }
  }

  private async load(request: CellRequest, level: number): Promise<void> {
    const stop = new AbortController(), mine = this.now = { stop, level };
    this.busy = true;
    try {
      const cells = await this.fetch(request, stop.signal);
      if (stop.signal.aborted) return;
      this.tiles.put(request, level, cells);
    } catch (error) {
      if (stop.signal.aborted) return;
      this.error = error;
      this.busy = false;
    }
    if (this.now === mine) this.now = null;
    this.changed();
    this.next();
  }
}

export interface CellsAsked {
  fetch: Fetch; first: number; last: number; stride: number; rows: RowRequest[]; survey: RowRequest[]; window: Window;
  width: number; revision: string;
}

/** Keep the cells of a series up to date with what is on screen. `version` grows when cells arrive. */
export function useCells(asked: CellsAsked): { loader: CellLoader; level: number; surveyLevel: number; version: number } {
  const { fetch, first, last, stride, rows, survey, window, width, revision } = asked;
  const [version, setVersion] = useState(0);
  const held = useRef<{ loader: CellLoader; fetch: Fetch; stride: number } | null>(null);
  const seen = useRef({ last, revision });
  if (!held.current || held.current.fetch !== fetch || held.current.stride !== stride) {
    held.current?.loader.close();
    const tiles = new Tiles(stride, last);
    held.current = { loader: new CellLoader(tiles, fetch, () => setVersion(n => n + 1)), fetch, stride };
    seen.current = { last, revision };
  }
  const { loader } = held.current;
  if (seen.current.revision !== revision) loader.tiles.spoil();
  if (seen.current.last !== last || seen.current.revision !== revision) loader.tiles.grow(seen.current.last, last);
  const grown = seen.current.last !== last;
  seen.current = { last, revision };
  const level = levelFor(window, width, stride), surveyLevel = levelFor(whole(first, last), SURVEY, stride);
  useEffect(() => {
    if (width < 1) return;
    const seenNow = { rows, window, level };
    loader.want([seenNow, { rows: survey, window: whole(first, last), level: surveyLevel }], grown || version === 0);
  }, [loader, rows, survey, window.from, window.to, level, width, last, revision]);
  useEffect(() => () => held.current?.loader.close(), []);
  return { loader, level, surveyLevel, version };
}
