import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { drawAxis, drawMap, drawMarks } from "../draw/heat_map";
import { painter, rangeOf, roundStep, type Scale } from "../model/colour";
import { stepsText } from "../model/numbers";
import type { Row } from "../model/rows";
import { cellStart, moved, stepsPerCell, whole, type Window, zoomed } from "../model/steps";
import type { Fetch } from "../model/tiles";
import { visible } from "../model/visible";
import { SURVEY, useCells } from "./cells";
import { useGestures } from "./gestures";
import { Legend } from "./legend";
import type { MapHandle } from "./map_export";
import { RowLabels } from "./row_labels";
import { useSize } from "./size";
import { Trouble } from "./trouble";
import { useView } from "./view";

/** Rows whose cells are loaded above and below the screen. */
const SPARE = 12;
/** Rows of the survey that gives the range of the colours. */
const SURVEY_ROWS = 60;
const AXIS = 24;
/** Height of the axis and the legend below the rows. */
const FOOT = 92;
/** A few rows become higher to use the space. */
const HIGHEST_ROW = 30;

export interface MapProps {
  name: string; rows: Row[]; fetch: Fetch; first: number; last: number; stride: number; revision: string;
  window: Window; onWindow: (next: Window) => void;
  scale: Scale; range: [number, number] | null; palette: Uint32Array; words: (cell: number) => string;
  types: Record<string, string>; isTree: boolean; rowHeight: number;
  selected: string | null; step: number | null;
  onSelect: (row: Row, step: number | null) => void; onToggle: (row: Row) => void; onInside: (row: Row) => void;
  handle?: { current: MapHandle | null }; note?: string; legendTitle: string;
}

/** Rows of targets and columns of steps. */
export function HeatMap(props: MapProps) {
  const { rows, first, last, stride, window: shown, scale, step } = props;
  const { ink } = useView();
  const outer = useRef<HTMLDivElement>(null), scroller = useRef<HTMLDivElement>(null), cellsBox = useRef<HTMLDivElement>(null);
  const map = useRef<HTMLCanvasElement>(null), marks = useRef<HTMLCanvasElement>(null), axis = useRef<HTMLCanvasElement>(null);
  const { height } = useSize(scroller), { width } = useSize(cellsBox);
  const space = useSize(outer).height - FOOT;
  const rowHeight = Math.max(props.rowHeight, Math.min(HIGHEST_ROW, Math.floor(space / Math.max(1, rows.length))));
  const [scrolled, setScrolled] = useState(0);
  const [cursor, setCursor] = useState<{ row: number; step: number; keys: boolean } | null>(null);
  const [active, setActive] = useState(0);

  const top = Math.min(scrolled, Math.max(0, rows.length * rowHeight - height));
  const from = Math.min(rows.length, Math.floor(top / rowHeight)), offset = top - from * rowHeight;
  const to = Math.min(rows.length, Math.ceil((top + height) / rowHeight));
  const asked = useMemo(() => rows.slice(Math.max(0, from - SPARE), to + SPARE), [rows, from, to]);
  const survey = useMemo(() => rows.slice(0, SURVEY_ROWS), [rows]);
  const { loader, level, surveyLevel, version } = useCells({
    fetch: props.fetch, first, last, stride, rows: asked, survey, window: shown, width, revision: props.revision,
  });
  const each = stepsPerCell(level, stride);

  const usual = useMemo(() => {
    const all = new Float32Array(survey.length * SURVEY);
    survey.forEach((row, i) => loader.tiles.compose(row.key, whole(first, last), surveyLevel, all.subarray(i * SURVEY, (i + 1) * SURVEY)));
    const [low, high] = rangeOf(all, scale);
    return [low, scale === "linear" && high > 0 ? roundStep(high) : high] as [number, number];
  }, [version, survey, scale, loader, surveyLevel, last]);
  const low = props.range?.[0] ?? usual[0], high = props.range?.[1] ?? usual[1];
  const range = useMemo(() => [scale === "log" && low <= 0 ? high / 1e6 : low, high] as [number, number], [low, high, scale]);

  // A ratio has no zero, and its middle is close to the usual colour of nothing.
  const colours = useMemo(() => scale === "ratio" ? { ...ink.cells, nothing: ink.cells.zero } : ink.cells, [ink, scale]);

  const strips = useMemo(() => rows.slice(from, to).map(row => {
    const strip = new Float32Array(Math.max(1, width));
    loader.tiles.compose(row.key, shown, level, strip);
    return strip;
  }), [rows, from, to, shown.from, shown.to, width, version, loader, level]);

  useLayoutEffect(() => {
    if (!map.current || width < 1 || height < 1) return;
    const paint = painter(range, scale, props.palette, colours);
    drawMap(map.current, width, height, { strips, rowHeight, offset, paint, bad: ink.bad, mark: ink.theme === "dark" ? "#2b0707" : "#ffffff" });
  }, [strips, offset, height, width, range, scale, props.palette, ink, rowHeight]);
  useLayoutEffect(() => {
    if (axis.current && width > 0) drawAxis(axis.current, width, AXIS, shown, ink.quiet);
  }, [width, shown.from, shown.to, ink]);

  const perStep = width / (shown.to - shown.from);
  const cellAt = (at: number) => {
    const start = cellStart(at, each);
    return { left: (start - shown.from) * perStep, right: (start + each - shown.from) * perStep, start };
  };
  const selectedRow = useMemo(() => nearestRow(rows, props.selected), [rows, props.selected]);
  useLayoutEffect(() => {
    if (!marks.current || width < 1 || height < 1) return;
    drawMarks(marks.current, width, height, {
      rowHeight, offset, cursor: cursor && { row: cursor.row - from, ...cellAt(cursor.step) },
      selectedRow: selectedRow < from || selectedRow >= to ? -1 : selectedRow - from,
      selected: step === null ? null : cellAt(step), line: ink.text,
    });
  }, [cursor, width, height, offset, from, to, selectedRow, step, shown.from, shown.to, each, ink, rowHeight]);

  const find = (x: number, y: number) => {
    const row = Math.floor((y + top) / rowHeight), at = Math.floor(shown.from + x / Math.max(perStep, 1e-9));
    return row < 0 || row >= rows.length ? null : { row, step: Math.min(last, Math.max(first, at)) };
  };
  useGestures(cellsBox, {
    window: shown, width, move: props.onWindow,
    point: (x, y) => {
      const found = find(x, y);
      setCursor(found && { ...found, keys: false });
    },
    leave: () => setCursor(null),
    click: (x, y) => {
      const found = find(x, y);
      if (!found) return;
      setActive(found.row);
      props.onSelect(rows[found.row]!, found.step);
    },
  });

  const reveal = (row: number) => {
    const box = scroller.current;
    if (!box) return;
    if (row * rowHeight < box.scrollTop) box.scrollTop = row * rowHeight;
    else if ((row + 1) * rowHeight > box.scrollTop + box.clientHeight) box.scrollTop = (row + 1) * rowHeight - box.clientHeight;
    setScrolled(box.scrollTop);
  };
  useEffect(() => {
    if (selectedRow < 0) return;
    setActive(selectedRow);
    reveal(selectedRow);
  }, [props.selected, height > 0]);
  useEffect(() => setActive(place => Math.min(place, Math.max(0, rows.length - 1))), [rows]);

  const zoomKey = (key: string): boolean => {
    const middle = cursor?.keys ? cursor.step + 0.5 : (shown.from + shown.to) / 2;
    if (key === "+" || key === "=") props.onWindow(zoomed(shown, middle, 0.6));
    else if (key === "-") props.onWindow(zoomed(shown, middle, 1 / 0.6));
    else if (key === "0") props.onWindow(whole(first, last));
    else return false;
    return true;
  };
  const rowKey = (key: string, place: number): number | null => {
    const page = Math.max(1, Math.floor(height / rowHeight) - 1);
    const next = { ArrowDown: place + 1, ArrowUp: place - 1, PageDown: place + page, PageUp: place - page }[key];
    return next === undefined ? null : Math.min(rows.length - 1, Math.max(0, next));
  };
  const onTreeKey = (event: KeyboardEvent) => {
    const row = rows[active], ends: Record<string, number> = { Home: 0, End: rows.length - 1 };
    const next = ends[event.key] ?? rowKey(event.key, active);
    if (event.ctrlKey || event.metaKey || event.altKey || !row) return;
    if (next !== null) {
      setActive(next);
      reveal(next);
    } else if (event.key === "ArrowRight" && row.openable) {
      if (row.open) setActive(active + 1);
      else props.onToggle(row);
    } else if (event.key === "ArrowLeft") {
      if (row.open) props.onToggle(row);
      else setActive(Math.max(0, rows.findLastIndex((one, place) => place < active && one.level < row.level)));
    } else if (event.key === "Enter" || event.key === " ") props.onSelect(row, null);
    else if (event.key === "z" && row.openable) props.onInside(row);
    else if (!zoomKey(event.key)) return;
    event.preventDefault();
  };
  const onCellsKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !rows.length) return;
    const at = cursor ?? { row: Math.min(active, rows.length - 1), step: Math.floor((shown.from + shown.to) / 2) };
    const next = rowKey(event.key, at.row), sideways = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.shiftKey && sideways) props.onWindow(moved(shown, sideways * (shown.to - shown.from) / 10));
    else if (next !== null) {
      setCursor({ ...at, row: next, keys: true });
      reveal(next);
    } else if (sideways) {
      const moveTo = Math.min(last, Math.max(first, cellStart(at.step, each) + sideways * each));
      setCursor({ ...at, step: moveTo, keys: true });
      if (moveTo < shown.from || moveTo + each > shown.to) props.onWindow(moved(shown, sideways * (shown.to - shown.from) / 4));
    } else if (event.key === "Home" || event.key === "End") setCursor({ ...at, step: event.key === "Home" ? first : last, keys: true });
    else if (event.key === "Enter" || event.key === " ") {
      setActive(at.row);
      props.onSelect(rows[at.row]!, at.step);
    } else if (event.key === "Escape") setCursor(null);
    else if (!zoomKey(event.key)) return;
    event.preventDefault();
  };

  const under = cursor && rows[cursor.row] ? cursor : null;
  const cell = useMemo(() => {
    if (!under) return NaN;
    const one = new Float32Array(1), start = cellAt(under.step).start;
    loader.tiles.compose(rows[under.row]!.key, { from: start, to: start + each }, level, one);
    return one[0]!;
  }, [under?.row, under?.step, version, each, rows]);
  const place = under && { ...cellAt(under.step), top: (under.row + 1) * rowHeight - top };
  if (props.handle) props.handle.current = { rows, shown, each, last, range, scale, strips: () => strips, from, to, fetch: props.fetch, map: map.current, rowHeight, ink, width, name: props.name, paint: painter(range, scale, props.palette, colours) };

  return (
    <div class="map" ref={outer}>
      <div class="map-scroll" ref={scroller} onScroll={event => setScrolled(event.currentTarget.scrollTop)} tabIndex={-1}>
        <div class="map-tall" style={{ height: `${Math.max(1, rows.length * rowHeight)}px` }}>
          <div class="map-shown" style={{ height: `${height}px` }}>
            <RowLabels rows={rows} from={from} to={to} offset={offset} rowHeight={rowHeight} selected={selectedRow} active={active}
              types={props.types} isTree={props.isTree} id="row" onKey={onTreeKey} onToggle={props.onToggle} onInside={props.onInside}
              onPick={row => {
                setActive(row);
                props.onSelect(rows[row]!, null);
              }} />
            <div class="map-cells" ref={cellsBox} tabIndex={0} role="application" aria-roledescription="heat map" onKeyDown={onCellsKey}
              onBlur={() => setCursor(null)}
              aria-label={`${props.name}: ${rows.length} rows by steps. Arrow keys move between cells, plus and minus zoom, 0 shows all steps, Enter selects.`}>
              <canvas ref={map} aria-hidden="true" />
              <canvas ref={marks} class="marks" aria-hidden="true" />
              {under && place && (
                <div class="tip" aria-hidden="true" style={{
                  top: `${place.top > height - 76 ? place.top - rowHeight - 74 : place.top + 6}px`,
                  ...(place.left < width / 2 ? { left: `${Math.max(0, place.right) + 8}px` } : { right: `${width - Math.min(width, place.left) + 8}px` }),
                }}>
                  <b><bdi>{visible(rows[under.row]!.name)}</bdi></b>
                  <span>{rows[under.row]!.covered > 1 ? `largest of ${rows[under.row]!.covered} targets, ` : ""}{stepsText(place.start, each, first, last)}</span>
                  <span class={cell === Infinity ? "value bad-text" : "value"}>{cell === Infinity && "▨ "}{props.words(cell)}</span>
                </div>)}
            </div>
          </div>
        </div>
      </div>
      <div class="map-foot"><span class="axis-name">step</span><canvas ref={axis} aria-hidden="true" /></div>
      <div class="sr" aria-live="polite">{under?.keys ? `${rows[under.row]!.name}, ${stepsText(place!.start, each, first, last)}: ${props.words(cell)}` : ""}</div>
      <Legend range={range} scale={scale} palette={props.palette} title={props.legendTitle}
        note={[props.note, each > 1 ? `each cell covers ${each.toLocaleString("en")} steps` : "each cell is one step"].filter(Boolean).join("; ")} busy={loader.busy} />
      {loader.error !== null && <Trouble error={loader.error} retry={() => loader.retry()} />}
    </div>
  );
}

/** Return the selected row, or the closed module that contains it, or -1. */
function nearestRow(rows: Row[], selected: string | null): number {
  if (selected === null) return -1;
  const exact = rows.findIndex(row => row.id === selected);
  if (exact >= 0) return exact;
  const name = selected.replace(/^=/, "");
  return rows.findLastIndex(row => row.name === name || (!row.itself && (name.startsWith(`${row.name}.`) || name.startsWith(`${row.name}:`))));
}
