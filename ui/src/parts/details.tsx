import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Curve, HistogramSeries, Range, Run, Series } from "../data/source";
import { drawHistogram, type HistogramPicture } from "../draw/histogram";
import { count, many } from "../model/numbers";
import type { Row } from "../model/rows";
import { seriesKey, seriesTitle } from "../model/series";
import { cellStart, levelFor, stepsPerCell, type Window } from "../model/steps";
import type { Tree } from "../model/tree";
import { visible } from "../model/visible";
import { useAnswer } from "./answer";
import { CoveringHooks } from "./covering_hooks";
import { CurvePlot } from "./curve_plot";
import { NumbersTable } from "./numbers_table";
import { useMedia } from "./row_height";
import { useRests, useSettled } from "./settled";
import { useSize } from "./size";
import { Loading, Trouble } from "./trouble";
import { useView } from "./view";

export interface DetailsProps {
  run: Run; series: Series; row: Row | null; tree: Tree; shown: Window; stride: number; onInside: (() => void) | null;
}

/** Everything about the selected row. It stays beside the map. */
export function Details(props: DetailsProps) {
  const { run, row, onInside } = props;
  const { go, state } = useView();
  if (!row) {
    return (
      <aside class="details hint" aria-label="Details">
        <h2>{state.target === null ? "Select a row or a cell" : "This run has no such target"}</h2>
        <p>{state.target === null ? "Its curve, its statistics, its histogram and its hooks then show here." : <bdi>{state.target.replace(/^=/, "")}</bdi>}</p>
        <dl class="keys">
          <dt><kbd>↑</kbd> <kbd>↓</kbd></dt><dd>next row</dd>
          <dt><kbd>→</kbd> <kbd>←</kbd></dt><dd>open, close a module</dd>
          <dt><kbd>Enter</kbd></dt><dd>select</dd>
          <dt><kbd>z</kbd>, double click</dt><dd>zoom into a module</dd>
          <dt><kbd>+</kbd> <kbd>−</kbd> <kbd>0</kbd></dt><dd>zoom steps, show all</dd>
          <dt><kbd>Ctrl</kbd> + wheel</dt><dd>zoom around the pointer</dd>
          <dt>drag</dt><dd>move along the steps</dd>
        </dl>
      </aside>
    );
  }
  const range = row.ranges[0]!, type = run.types[row.name];
  const several = row.target < 0;
  return (
    <aside class="details" aria-label={`Details of ${row.name}`}>
      <header class="details-head">
        <h2><bdi>{visible(row.name)}</bdi></h2>
        <button type="button" class="small" aria-label="Close the details" title="Close" onClick={() => go({ target: null, step: null })}>✕</button>
        <p class="quiet">{[type, several ? `module with ${many(row.covered, "target")}` : row.name === "." ? "root" : null].filter(Boolean).join(" · ")}
          {onInside && <> · <button type="button" class="link" onClick={onInside}>zoom into</button></>}</p>
      </header>
      {row.covered === 0 ? <p class="quiet">{`The series ${seriesTitle(props.series)} has no numbers of this target. Choose another series.`}</p> : <DetailCurve {...props} row={row} />}
      {run.histograms.filter(one => touches(one.ranges, range)).map(one => <DetailHistogram key={one.hook} run={run} histogram={one} range={range} />)}
      {several ? <p class="quiet">{`The curve shows the largest value among ${many(row.covered, "target")}. Open the module and select one target for its statistics.`}</p>
        : <NumbersTable run={run} target={row.target} series={props.series} />}
      <CoveringHooks run={run} range={range} name={row.name} />
    </aside>
  );
}

export function touches(ranges: Range[], [start, end]: Range): boolean {
  return ranges.some(([from, to]) => from < end && start < to);
}

const POINTS = 500;

function DetailCurve({ run, series, row, shown, stride }: DetailsProps & { row: Row }) {
  const { source, state, go, ink, beat } = useView();
  const first = Math.max(run.first, Math.floor(shown.from)), last = Math.min(run.last, Math.ceil(shown.to) - 1);
  const settled = useSettled(`${first}~${last}`, 120), [from, to] = settled.split("~").map(Number) as [number, number];
  const whole = row.target < 0;
  const { value, error, retry } = useAnswer(signal => whole ? largest(from, to, signal) : source.curve(
    { run: run.id, hook: series.hook, name: series.name, target: row.target, first: from, last: to, points: POINTS }, signal),
  [run.id, seriesKey(series), row.key, settled], beat);
  const largest = async (start: number, end: number, signal: AbortSignal): Promise<Curve> => {
    const each = stepsPerCell(levelFor({ from: start, to: end + 1 }, POINTS, stride), stride);
    const begin = cellStart(start, each), columns = Math.ceil((end + 1 - begin) / each);
    const cells = await source.matrix({ run: run.id, hook: series.hook, name: series.name, rows: [row.ranges[0]!], first: begin, each, columns, of: "maximum" }, signal);
    const curve: Curve = { steps: [], low: [], high: [], nonfinite: [] };
    cells.forEach((cell, column) => {
      if (cell !== cell) return;
      const step = Math.max(run.first, begin + column * each), finite = cell === Infinity ? null : cell;
      curve.steps.push(step);
      curve.low.push(finite);
      curve.high.push(finite);
      if (finite === null) curve.nonfinite.push(step);
    });
    return curve;
  };
  // The last curve stays until the next one is here, so that panning does not flicker.
  const kept = useRef<{ curve: Curve; key: string } | null>(null), key = row.key + seriesKey(series);
  if (value) kept.current = { curve: value, key };
  const curve = value ?? (kept.current?.key === key ? kept.current.curve : null);
  const title = `${seriesTitle(series)}${whole ? ", largest" : ""}`;
  const lines = useMemo(() => curve ? [{ label: title, curve, colour: ink.accent }] : [], [curve, ink.accent, title]);
  const held = source.stepsPerValue(run.id, series.hook, series.name);
  if (error !== null) return <Trouble error={error} retry={retry} />;
  if (!curve) return <Loading what="the curve" />;
  return <CurvePlot title={title} lines={lines} scale={state.curve} first={from} last={to} step={state.step} height={170}
    onStep={step => go({ step })} onScale={scale => go({ curve: scale })} note={held > 1 ? `This file holds one value for each ${count(held)} steps.` : undefined} />;
}

function DetailHistogram({ run, histogram, range }: { run: Run; histogram: HistogramSeries; range: Range }) {
  const { source, ink, beat } = useView();
  const rests = useRests(`${run.id} ${range.join("~")}`);
  const { value, error, retry } = useAnswer(rests ? signal => source.histogram(run.id, histogram.hook, range, signal) : null, [run.id, histogram.hook, range[0], range[1]], beat);
  const box = useRef<HTMLDivElement>(null), canvas = useRef<HTMLCanvasElement>(null), picture = useRef<HistogramPicture | null>(null);
  const { width } = useSize(box), [under, setUnder] = useState<string | null>(null);
  const wider = value?.range ? value.range[1] - value.range[0] : 0;
  const short = useMedia("(max-width: 1000px)"), height = short ? 120 : 150;
  useEffect(() => {
    if (value && canvas.current && width > 80) picture.current = drawHistogram(canvas.current, width, height, value, ink);
  }, [value, width, ink, height]);
  return (
    <figure class="histogram">
      <figcaption class="curve-head"><span class="curve-title"><bdi>{histogram.hook}</bdi> <span class="quiet">histogram</span></span></figcaption>
      <p class="readout quiet">{under ?? "elements in each power of two, over steps"}</p>
      <div ref={box}>
        {value && !value.steps.length && <p class="quiet">Nothing recorded.</p>}
        <canvas ref={canvas} class={value?.steps.length ? "" : "gone"} role="img" aria-label={value ? `Histogram of magnitudes for ${many(value.steps.length, "step")}` : "Histogram"}
          onPointerMove={event => setUnder(picture.current?.at(event.offsetX, event.offsetY) ?? null)} onPointerLeave={() => setUnder(null)} />
      </div>
      {wider > range[1] - range[0] && <p class="curve-note">{`The file holds histograms of whole blocks. This is the sum over the ${many(wider, "target")} of the block.`}</p>}
      {error !== null && <Trouble error={error} retry={retry} />}
    </figure>
  );
}
