import uPlot from "uplot";
import type { Curve } from "../data/source";
import { count, tick } from "../model/numbers";
import type { Ink } from "../parts/theme";
import { FONT } from "./surface";

export interface Line { label: string; curve: Curve; colour: string; dash?: number[] }

export interface CurveLook {
  width: number; height: number; scale: "log" | "linear"; first: number; last: number; step: number | null; ink: Ink;
  onCursor: (step: number | null) => void; onStep?: ((step: number) => void) | undefined;
}

/** Return the numbers that a logarithmic axis cannot show, over all lines. */
export function notOnLog(lines: Line[]): number {
  return lines.reduce((sum, { curve }) => sum + curve.low.filter(value => value !== null && value <= 0).length, 0);
}

/** Join the lines on common steps. Each line has a lower and an upper bound, equal where a point is one step. */
function joined(lines: Line[], scale: "log" | "linear"): uPlot.AlignedData {
  const fit = (values: (number | null)[]) => scale === "log" ? values.map(value => value !== null && value <= 0 ? null : value) : values;
  const tables = lines.map(({ curve }) => [curve.steps, fit(curve.high), fit(curve.low)] as uPlot.AlignedData);
  return tables.length === 1 ? tables[0]! : uPlot.join(tables);
}

/** Draw curves into an element. */
export function makeCurve(place: HTMLElement, lines: Line[], look: CurveLook): uPlot {
  const { ink, scale } = look;
  const axis = { stroke: ink.quiet, font: FONT, grid: { stroke: ink.line, width: 1 }, ticks: { show: false } };
  const labels = (_: uPlot, values: (number | null)[]) => values.map(value => value === null ? "" : tick(value));
  const series: uPlot.Series[] = [{}];
  const bands: uPlot.Band[] = [];
  lines.forEach(({ label, curve, colour, dash }) => {
    const few = curve.steps.length < 3;
    const points = few ? { show: true, size: 6, fill: colour } : { show: false };
    const one = { label, stroke: colour, width: 1.5, points, ...(dash ? { dash } : {}) };
    series.push({ ...one }, { ...one });
    bands.push({ series: [series.length - 2, series.length - 1], fill: fade(colour) });
  });
  const options: uPlot.Options = {
    width: look.width, height: look.height, series, bands, legend: { show: false }, padding: [8, 10, 0, 0],
    cursor: { drag: { x: false, y: false }, points: { show: lines.length < 9, size: 6 }, y: false },
    scales: {
      x: { time: false, range: () => padded(look.first, look.last) },
      y: scale === "log" ? { distr: 3, range: logRange } : { range: linearRange },
    },
    axes: [
      { ...axis, size: 26, space: look.last > 1e6 ? 96 : 70, incrs: WHOLE, values: (_: uPlot, steps: (number | null)[]) => steps.map(step => step === null ? "" : count(step)) },
      { ...axis, size: 58, space: 26, values: labels, ...(scale === "log" ? { splits: logSplits, filter: (_: uPlot, found: number[]) => found } : {}) },
    ],
    hooks: {
      setCursor: [plot => {
        const at = plot.cursor.left !== undefined && plot.cursor.left >= 0 ? plot.cursor.idx : null;
        look.onCursor(at == null ? null : plot.data[0]![at] ?? null);
      }],
      draw: [plot => drawSigns(plot, lines, look)],
    },
  };
  const plot = new uPlot(options, joined(lines, scale), place);
  if (look.onStep) {
    plot.over.addEventListener("click", () => {
      const at = plot.cursor.idx;
      if (at != null) look.onStep!(plot.data[0]![at]!);
    });
  }
  return plot;
}

/** Steps are whole numbers, so ticks are too. */
const WHOLE = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map(times => times * 10 ** power)).flat();

/** Round numbers on a logarithmic axis: powers of ten, and 2 and 5 between them if there are few. */
function logSplits(_: uPlot, __: number, low: number, high: number): number[] {
  const decades = Math.log10(high / low), from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high));
  const times = decades < 0.4 ? [1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9] : decades < 0.9 ? [1, 2, 3, 4, 5, 7] : decades < 3 ? [1, 2, 5] : [1];
  const each = Math.max(1, Math.ceil(decades / 6)), found: number[] = [];
  for (let power = from; power <= to; power++) {
    if (power % each) continue;
    for (const one of times) found.push(Number(`${one}e${power}`));
  }
  const inside = found.filter(value => value >= low && value <= high);
  return inside.length > 1 ? inside : evenSplits(low, high);
}

/** Round numbers at equal distances, for a range that is too narrow for those of a logarithmic axis. */
function evenSplits(low: number, high: number): number[] {
  const power = 10 ** Math.floor(Math.log10((high - low) / 3)), times = [1, 2, 5, 10].find(one => (high - low) / (one * power) <= 5) ?? 10;
  const step = times * power, first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, place) => Number(((first + place) * step).toPrecision(12)));
}

function padded(first: number, last: number): [number, number] {
  return last > first ? [first, last] : [first - 1, first + 1];
}

function logRange(_: uPlot, low: number | null, high: number | null): [number, number] {
  if (low === null || high === null || !(low > 0)) return [0.1, 1];
  if (high / low < 1.05) return [low / 2, high * 2];
  const room = (high / low) ** 0.05;
  return [low / room, high * room];
}

function linearRange(_: uPlot, low: number | null, high: number | null): [number, number] {
  if (low === null || high === null) return [0, 1];
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

/** Mark the steps that are not finite, and the selected step. */
function drawSigns(plot: uPlot, lines: Line[], { ink, step }: CurveLook): void {
  const { ctx } = plot, { left, top, width, height } = plot.bbox, ratio = devicePixelRatio || 1;
  ctx.save();
  ctx.beginPath();
  ctx.rect(left - 4 * ratio, top - 6 * ratio, width + 8 * ratio, height + 6 * ratio);
  ctx.clip();
  for (const { curve } of lines) {
    for (const [start, end] of spansOf(curve)) {
      const x = plot.valToPos(start, "x", true), wide = Math.max(3 * ratio, plot.valToPos(end, "x", true) - x);
      ctx.fillStyle = ink.bad;
      ctx.fillRect(x - ratio, top - 4 * ratio, wide, 4 * ratio);
      // Behind several lines, the colour would hide those that are finite.
      ctx.globalAlpha = lines.length > 1 ? 0.05 : 0.13;
      ctx.fillRect(x - ratio, top, wide, height);
      ctx.globalAlpha = 1;
    }
  }
  if (step !== null) {
    const x = Math.round(plot.valToPos(step, "x", true));
    ctx.strokeStyle = ink.text;
    ctx.globalAlpha = 0.7;
    ctx.lineWidth = ratio;
    ctx.setLineDash([4 * ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(x, top);
    ctx.lineTo(x, top + height);
    ctx.stroke();
  }
  ctx.restore();
}

/** Join neighbouring steps that are not finite to spans, each from its first step to the step after its last one. */
export function spansOf({ steps, nonfinite }: Curve): [number, number][] {
  const gaps = nonfinite.slice(1).map((step, i) => step - nonfinite[i]!).sort((a, b) => a - b);
  const recorded = steps.slice(1).map((step, i) => step - steps[i]!).sort((a, b) => a - b);
  const usual = Math.min(gaps[gaps.length >> 1] ?? 1, recorded[recorded.length >> 1] ?? 1) || 1;
  const apart = Math.max(usual, recorded[recorded.length >> 1] ?? usual) * 1.5, spans: [number, number][] = [];
  for (const step of nonfinite) {
    const last = spans[spans.length - 1];
    if (last && step - last[1] < apart) last[1] = step + usual;
    else spans.push([step, step + usual]);
  }
  return spans;
}

function fade(hex: string): string {
  return /^#[0-9a-f]{6}$/i.test(hex) ? `${hex}33` : "transparent";
}
