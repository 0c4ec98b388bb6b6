import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { Run, Series } from "../data/source";
import { drawAxis, drawMap } from "../draw/heat_map";
import { painter, position, rangeOf, ticksOf, viridis } from "../model/colour";
import { Cover } from "../model/cover";
import { brief, cellText, count, tick } from "../model/numbers";
import { levelAtFirst, listRows } from "../model/rows";
import { firstSeries, seriesKey, seriesTitle } from "../model/series";
import { cellStart, levelFor, stepsPerCell, whole } from "../model/steps";
import { ROOT } from "../model/tree";
import { visible } from "../model/visible";
import { useAnswer } from "./answer";
import { Legend } from "./legend";
import { useSize } from "./size";
import { useStride } from "./stride";
import { useTree } from "./tree_of";
import { Loading, Trouble } from "./trouble";
import { useView } from "./view";

/** Rows to show, and rows if that leaves too few of them, as in a model of many equal blocks. */
const ROWS = 24, FEW = 8, MOST_ROWS = 100;
const AXIS = 22;

/** The first series of gradient norms: blocks by steps, and the last value of each block. */
export function GradientFlow({ run }: { run: Run }) {
  const series = firstSeries(run);
  if (!series || !series.ranges.length) return <section class="card"><h2>Gradient flow</h2><p class="quiet">The run has no recorded numbers.</p></section>;
  return <Flowing run={run} series={series} />;
}

function Flowing({ run, series }: { run: Run; series: Series }) {
  const { source, go, ink, beat } = useView();
  const tree = useTree(run), stride = useStride(run, series);
  const cover = useMemo(() => new Cover(run.targets.length, series.ranges), [run.targets, seriesKey(series)]);
  const all = useMemo(() => {
    const list = (most: number) => {
      const level = levelAtFirst(tree, cover, ROOT, most);
      // A row of a module would only repeat the rows below it.
      return listRows(tree, cover, ROOT, (_, at) => at < level).filter(row => !row.open);
    };
    const found = list(ROWS);
    return found.length < FEW ? list(MOST_ROWS) : found;
  }, [tree, cover]);
  const rows = useMemo(() => all.slice(0, MOST_ROWS), [all]), rowHeight = rows.length > 30 ? 14 : 20;
  const box = useRef<HTMLDivElement>(null), canvas = useRef<HTMLCanvasElement>(null), axis = useRef<HTMLCanvasElement>(null);
  const { width } = useSize(box);
  const steps = whole(run.first, run.last), level = levelFor(steps, Math.max(64, width), stride ?? 1), each = stepsPerCell(level, stride ?? 1);
  const start = cellStart(run.first, each), columns = Math.max(1, Math.ceil((run.last + 1 - start) / each));
  const ranges = useMemo(() => rows.map(row => row.ranges[0]!), [rows]);
  const asked = { run: run.id, hook: series.hook, name: series.name, rows: ranges, of: "maximum" as const };
  const ready = width > 0 && stride !== null && rows.length > 0;
  const cells = useAnswer(ready ? async signal => ({ start, columns, each, cells: await source.matrix({ ...asked, first: start, each, columns }, signal) })
    : null, [run.id, seriesKey(series), ranges, width > 0 ? each : 0], beat);
  const title = /norm|rms/.test(series.name) ? "Gradient flow" : "Layers by steps";
  const height = rows.length * rowHeight;

  const shown = useMemo(() => {
    if (!cells.value || width < 1) return null;
    const { cells: found, start: from, columns: wide, each: every } = cells.value, range = rangeOf(found, "log");
    const perPixel = (steps.to - steps.from) / width;
    const strips = rows.map((_, row) => Float32Array.from({ length: width }, (_, x) => {
      const column = Math.floor((steps.from + (x + 0.5) * perPixel - from) / every);
      return column < wide ? found[row * wide + column]! : NaN;
    }));
    const lasts = rows.map((_, row) => {
      let column = wide - 1;
      while (column > 0 && found[row * wide + column]! !== found[row * wide + column]!) column--;
      return { value: found[row * wide + column]!, step: Math.max(run.first, from + column * every) };
    });
    return { strips, range, lasts };
  }, [cells.value, width, rows]);

  useLayoutEffect(() => {
    if (!shown || !canvas.current || !axis.current) return;
    const paint = painter(shown.range, "log", viridis, ink.cells);
    drawMap(canvas.current, width, height, { strips: shown.strips, rowHeight, offset: 0, paint, bad: ink.bad, mark: ink.theme === "dark" ? "#2b0707" : "#ffffff" });
    drawAxis(axis.current, width, AXIS, steps, ink.quiet);
  }, [shown, ink, width, height, run.last]);

  return (
    <section class="card" aria-labelledby="flow-title">
      <h2 id="flow-title">{title} <span class="quiet">{seriesTitle(series)}</span></h2>
      {cells.error !== null && <Trouble error={cells.error} retry={cells.retry} />}
      <div class="flowing" style={{ gridTemplateRows: `${height}px auto` }}>
        <ul class="flowing-names">
          {rows.map(row => (
            <li key={row.key} style={{ height: `${rowHeight}px` }}>
              <button type="button" class="link" title={`${row.name}${row.covered > 1 ? ` · ${count(row.covered)} targets` : ""}`}
                onClick={() => go({ page: "flow", series: seriesKey(series), target: row.id })}><bdi class="name">{visible(shortName(row.name))}</bdi></button>
            </li>))}
        </ul>
        <div class="flowing-map" ref={box}>
          <canvas ref={canvas} role="img" aria-label={`${title}: ${rows.length} rows by ${count(run.last - run.first + 1)} steps. The page Flow shows each cell.`} />
          {!shown && <Loading what="the map" />}
        </div>
        <ol class="flowing-bars" aria-label="Last values in the order of the model">
          {rows.map((row, place) => {
            const last = shown?.lasts[place], value = last?.value ?? NaN;
            const size = Number.isFinite(value) && value > 0 ? Math.max(0.01, position(value, shown!.range, "log")) : 0;
            return (
              <li key={row.key} style={{ height: `${rowHeight}px` }} title={last ? `${row.name}, step ${count(last.step)}` : row.name}>
                <span class="bar"><span class={value === Infinity ? "bar-fill bad" : "bar-fill"} style={{ width: `${value === Infinity ? 100 : size * 100}%` }} /></span>
                <span class={value === Infinity ? "bar-value bad-text" : "bar-value"}>{value === Infinity ? "not finite" : value !== value ? "–" : cellText(value)}</span>
              </li>);
          })}
        </ol>
        <span class="axis-name">step</span>
        <canvas ref={axis} aria-hidden="true" />
        <span class="bar-axis" aria-hidden="true">{shown && <><span>{tick(ticksOf(shown.range, "log", 2)[0]!)}</span><span>last value</span><span>{brief(shown.range[1])}</span></>}</span>
      </div>
      {shown && <Legend range={shown.range} scale="log" palette={viridis} title={`largest ${series.name}`} busy={false}
        note={all.length > rows.length ? `the first ${rows.length} of ${count(all.length)} rows; the page Flow shows all` : ""} />}
    </section>
  );
}

/** The last two parts of a name tell the rows apart in most models. */
function shortName(name: string): string {
  return name.split(/(?=[.:])/).slice(-2).join("").replace(/^\.(?=.)/, "");
}
