import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { Run, Series } from "../data/source";
import { drawAxis, drawMap } from "../draw/heat_map";
import { painter, position, rangeOf, ticksOf, viridis } from "../model/colour";
import { Cover } from "../model/cover";
import { brief, cellText, count, tick } from "../model/numbers";
import { levelAtFirst, listRows } from "../model/rows";
import { firstSeries, seriesKey, seriesTitle } from "../model/series";
import { levelFor, stepsPerCell, whole } from "../model/steps";
import { ROOT } from "../model/tree";
import { visible } from "../model/visible";
import { useAnswer } from "./answer";
import { useSize } from "./size";
import { useStride } from "./stride";
import { useTree } from "./tree_of";
import { Loading, Trouble } from "./trouble";
import { useView } from "./view";

const ROWS = 24, ROW = 20, AXIS = 22;

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
  const rows = useMemo(() => {
    const level = levelAtFirst(tree, cover, ROOT, ROWS);
    // A row of a module would only repeat the rows below it.
    return listRows(tree, cover, ROOT, (_, at) => at < level, 500).filter(row => !row.open).slice(0, ROWS * 2);
  }, [tree, cover]);
  const box = useRef<HTMLDivElement>(null), canvas = useRef<HTMLCanvasElement>(null), axis = useRef<HTMLCanvasElement>(null);
  const { width } = useSize(box);
  const all = whole(run.first, run.last), level = levelFor(all, Math.max(64, width), stride ?? 1), each = stepsPerCell(level, stride ?? 1);
  const columns = Math.max(1, Math.ceil((run.last + 1 - run.first) / each));
  const ranges = useMemo(() => rows.map(row => row.ranges[0]!), [rows]);
  const asked = { run: run.id, hook: series.hook, name: series.name, rows: ranges, of: "maximum" as const };
  const ready = width > 0 && stride !== null && rows.length > 0;
  const cells = useAnswer(ready ? async signal => ({ columns, each, cells: await source.matrix({ ...asked, first: run.first, each, columns }, signal) })
    : null, [run.id, seriesKey(series), ranges, width > 0 ? each : 0], beat);
  const title = /norm|rms/.test(series.name) ? "Gradient flow" : "Layers by steps";
  const height = rows.length * ROW;

  const shown = useMemo(() => {
    if (!cells.value || width < 1) return null;
    const { cells: found, columns: wide, each: steps } = cells.value, range = rangeOf(found, "log");
    const perPixel = (all.to - all.from) / width;
    const strips = rows.map((_, row) => Float32Array.from({ length: width }, (_, x) => {
      const column = Math.floor((x + 0.5) * perPixel / steps);
      return column < wide ? found[row * wide + column]! : NaN;
    }));
    const lasts = rows.map((_, row) => {
      let column = wide - 1;
      while (column > 0 && found[row * wide + column]! !== found[row * wide + column]!) column--;
      return { value: found[row * wide + column]!, step: run.first + column * steps };
    });
    return { strips, range, lasts };
  }, [cells.value, width, rows]);

  useLayoutEffect(() => {
    if (!shown || !canvas.current || !axis.current) return;
    const paint = painter(shown.range, "log", viridis, ink.cells);
    drawMap(canvas.current, width, height, { strips: shown.strips, rowHeight: ROW, offset: 0, paint, bad: ink.bad, mark: ink.theme === "dark" ? "#2b0707" : "#ffffff" });
    drawAxis(axis.current, width, AXIS, all, ink.quiet);
  }, [shown, ink, width, height, run.last]);

  return (
    <section class="card" aria-labelledby="flow-title">
      <h2 id="flow-title">{title} <span class="quiet">{seriesTitle(series)}</span></h2>
      {cells.error !== null && <Trouble error={cells.error} retry={cells.retry} />}
      <div class="flowing" style={{ gridTemplateRows: `${height}px auto` }}>
        <ul class="flowing-names">
          {rows.map(row => (
            <li key={row.key} style={{ height: `${ROW}px` }}>
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
              <li key={row.key} style={{ height: `${ROW}px` }} title={last ? `${row.name}, step ${count(last.step)}` : row.name}>
                <span class="bar"><span class={value === Infinity ? "bar-fill bad" : "bar-fill"} style={{ width: `${value === Infinity ? 100 : size * 100}%` }} /></span>
                <span class={value === Infinity ? "bar-value bad-text" : "bar-value"}>{value === Infinity ? "not finite" : value !== value ? "–" : cellText(value)}</span>
              </li>);
          })}
        </ol>
        <span class="axis-name">step</span>
        <canvas ref={axis} aria-hidden="true" />
        <span class="bar-axis" aria-hidden="true">{shown && <><span>{tick(ticksOf(shown.range, "log", 2)[0]!)}</span><span>last value</span><span>{brief(shown.range[1])}</span></>}</span>
      </div>
    </section>
  );
}

/** The last two parts of a name tell the rows apart in most models. */
function shortName(name: string): string {
  return name.split(/(?=[.:])/).slice(-2).join("").replace(/^\.(?=.)/, "");
}
