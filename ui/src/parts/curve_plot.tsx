import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type uPlot from "uplot";
import { type Line, makeCurve, notOnLog } from "../draw/curve";
import { brief, count, many } from "../model/numbers";
import { field } from "./map_export";
import { saveCanvas, saveText } from "./save";
import { useSize } from "./size";
import { useView } from "./view";

export interface CurvePlotProps {
  title: string; lines: Line[]; scale: "log" | "linear"; first: number; last: number; step: number | null; height: number;
  onStep?: (step: number) => void; onScale?: (scale: "log" | "linear") => void; note?: string | undefined;
}

/** Curves over steps, with the numbers under the pointer. */
export function CurvePlot(props: CurvePlotProps) {
  const { title, lines, scale, first, last, step, height, onStep, onScale, note } = props;
  const { ink } = useView();
  const box = useRef<HTMLDivElement>(null), plot = useRef<uPlot | null>(null);
  const { width } = useSize(box);
  const [under, setUnder] = useState<number | null>(null);
  const pick = useRef(onStep);
  pick.current = onStep;
  const key = lines.map(line => line.label + line.colour).join("\n");
  const curves = lines.map(line => line.curve);
  useEffect(() => {
    const place = box.current;
    if (!place || width < 40 || !lines.length) return undefined;
    plot.current = makeCurve(place, lines, {
      width, height, scale, first, last, step, ink, onCursor: setUnder,
      onStep: onStep ? at => pick.current?.(at) : undefined,
    });
    return () => plot.current?.destroy();
  }, [key, ...[0, 1, 2, 3, 4, 5, 6, 7].map(i => curves[i]), width, height, scale, first, last, step, ink, onStep === undefined]);
  const hidden = scale === "log" ? notOnLog(lines) : 0;
  const bad = new Set(lines.flatMap(({ curve }) => curve.nonfinite)).size;
  const summary = useMemo(() => lines.map(line => `${line.label}: ${describe(line)}`).join("; "), curves);
  const at = under ?? step;
  return (
    <figure class="curve">
      <figcaption class="curve-head">
        <span class="curve-title"><bdi>{title}</bdi></span>
        <span class="curve-actions">
          {onScale && <button type="button" class="small" aria-pressed={scale === "log"} onClick={() => onScale(scale === "log" ? "linear" : "log")}
            title="Switch between a logarithmic and a linear axis">{scale === "log" ? "log" : "linear"}</button>}
          <button type="button" class="small" onClick={() => saveTable(title, lines)} title="Save the numbers of this curve as a table">CSV</button>
          <button type="button" class="small" onClick={() => plot.current && savePicture(title, plot.current, ink.surface)} title="Save this curve as a picture">PNG</button>
        </span>
      </figcaption>
      <p class="readout">
        {at === null ? <span class="quiet">{lines.length > 1 ? "Last values" : "Last value"}</span> : <span class="quiet">step {count(at)}</span>}
        {lines.map((line, i) => (
          <span key={`${i}${line.label}`} class="reading">
            {lines.length > 1 && <Stroke colour={line.colour} dash={line.dash} />}
            {lines.length > 1 && <bdi class="reading-name">{line.label}</bdi>} <b>{valueAt(line, at)}</b>
          </span>))}
      </p>
      <div class="curve-plot" ref={box} style={{ height: `${height}px` }} role="img" aria-label={`Curve. ${summary}`} />
      {(hidden > 0 || bad > 0 || note) && (
        <p class="curve-note">
          {bad > 0 && <span class="bad-text"><span aria-hidden="true">▨ </span>{many(bad, "step")} not finite. </span>}
          {hidden > 0 && `${many(hidden, "value")} ≤ 0 cannot be shown on a logarithmic axis. `}{note}
        </p>)}
    </figure>
  );
}

/** A piece of the line, so that the label tells which line it belongs to without colour. */
export function Stroke({ colour, dash }: { colour: string; dash?: number[] | undefined }) {
  return (
    <svg class="stroke" width="26" height="8" aria-hidden="true">
      <line x1="1" x2="25" y1="4" y2="4" stroke={colour} stroke-width="2.5" stroke-dasharray={dash?.join(" ")} />
    </svg>
  );
}

function valueAt({ curve }: Line, step: number | null): string {
  let i = step === null ? curve.steps.length - 1 : curve.steps.findLastIndex(one => one <= step);
  if (step !== null && i < 0) return "–";
  if (step !== null && curve.nonfinite.includes(step)) return "not finite";
  // The last value may be not finite; the reader then also wants the last one that was.
  const ends = step === null && i >= 0 && curve.high[i] === null && curve.nonfinite.length > 0;
  if (step === null) while (i >= 0 && curve.high[i] === null) i--;
  const low = curve.low[i], high = curve.high[i];
  if (low == null || high == null) return curve.nonfinite.length ? "not finite" : "–";
  const text = (brief(low) === brief(high) ? brief(low) : `${brief(low)} to ${brief(high)}`)
    + (step !== null && curve.steps[i] !== step ? ` (step ${count(curve.steps[i]!)})` : "");
  return ends ? `not finite, before ${text}` : text;
}

function describe({ curve }: Line): string {
  const there = curve.low.filter(value => value !== null);
  if (!there.length) return curve.nonfinite.length ? "no finite values" : "nothing recorded";
  const least = there.reduce((a, b) => Math.min(a, b)), most = curve.high.reduce<number>((a, b) => b === null ? a : Math.max(a, b), -Infinity);
  return `${many(curve.steps.length, "point")} from step ${count(curve.steps[0]!)} to ${count(curve.steps[curve.steps.length - 1]!)}, `
    + `smallest ${brief(least)}, largest ${brief(most)}, ${curve.nonfinite.length} not finite`;
}

function saveTable(title: string, lines: Line[]): void {
  const rows = lines.flatMap(({ label, curve }) => {
    const bad = new Set(curve.nonfinite);
    return curve.steps.map((step, i) => [label, step, curve.low[i] ?? "", curve.high[i] ?? "", bad.has(step) ? "yes" : "no"]);
  });
  saveText(`${title}.csv`, "text/csv", [["curve", "step", "low", "high", "nonfinite"], ...rows].map(row => row.map(field).join(",")).join("\r\n") + "\r\n");
}

function savePicture(title: string, plot: uPlot, background: string): void {
  const from = plot.ctx.canvas, canvas = document.createElement("canvas"), head = 30 * (devicePixelRatio || 1);
  canvas.width = from.width;
  canvas.height = from.height + head;
  const context = canvas.getContext("2d")!;
  context.fillStyle = background;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(from, 0, head);
  context.font = `600 ${head * 0.45}px system-ui, sans-serif`;
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--text");
  context.fillText(title, head * 0.4, head * 0.65);
  saveCanvas(`${title}.png`, canvas);
}
