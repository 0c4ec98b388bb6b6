import type { Histogram } from "../data/source";
import { SHADES, viridis, css } from "../model/colour";
import { count, tick } from "../model/numbers";
import { axisSteps } from "./heat_map";
import { FONT, surface } from "./surface";
import type { Ink } from "../parts/theme";

const LEFT = 58, BOTTOM = 24, TOP = 6, RIGHT = 10;

export interface HistogramPicture {
  /** Return what is at a place of the canvas. */
  at: (x: number, y: number) => string | null;
}

/** Draw bins over steps. The colour of a bin is the logarithm of its count. */
export function drawHistogram(canvas: HTMLCanvasElement, width: number, height: number, data: Histogram, ink: Ink): HistogramPicture {
  const context = surface(canvas, width, height);
  const { steps, counts, edges } = data, bins = Math.max(0, ...counts.map(row => row.length));
  if (!steps.length || !bins) return { at: () => null };
  const used = Array.from({ length: bins }, (_, bin) => counts.some(row => (row[bin] ?? 0) > 0));
  // The lowest bin also holds zeros. It is shown next to the others, however far away they are.
  const zeros = used[0]! && used.indexOf(true, 1) > 1;
  const low = Math.max(zeros ? 1 : 0, zeros ? used.indexOf(true, 1) : used.indexOf(true)), high = Math.max(low, used.lastIndexOf(true));
  const shown = [...(zeros ? [0] : []), ...Array.from({ length: high - low + 1 }, (_, i) => low + i)];
  const wide = width - LEFT - RIGHT, tall = height - TOP - BOTTOM, binHeight = tall / shown.length;
  const gaps = steps.slice(1).map((step, i) => step - steps[i]!).sort((a, b) => a - b);
  const usual = gaps[gaps.length >> 1] ?? 1, from = steps[0]!, to = steps[steps.length - 1]! + usual;
  const x = (step: number) => LEFT + (step - from) / (to - from) * wide;
  const right = (i: number) => x(Math.min(steps[i + 1] ?? to, steps[i]! + usual * 1.5));
  const most = Math.log(1 + Math.max(1, ...counts.map(row => Math.max(0, ...row.filter(Number.isFinite)))));
  context.fillStyle = css(ink.cells.nothing);
  context.fillRect(LEFT, TOP, wide, tall);
  steps.forEach((step, i) => shown.forEach((bin, place) => {
    const amount = counts[i]![bin] ?? 0;
    if (!(amount > 0)) return;
    context.fillStyle = css(viridis[Math.round(Math.log(1 + amount) / most * (SHADES - 1))]!);
    const left = Math.floor(x(step)), top = TOP + tall - (place + 1) * binHeight;
    context.fillRect(left, Math.floor(top), Math.max(1, Math.ceil(right(i)) - left), Math.ceil(top + binHeight) - Math.floor(top));
  }));
  context.font = FONT;
  context.fillStyle = ink.quiet;
  context.textBaseline = "middle";
  context.textAlign = "right";
  let free = Infinity;
  shown.forEach((bin, place) => {
    const y = TOP + tall - (place + 0.5) * binHeight;
    if (y > free - 16 && !(zeros && bin === 0)) return;
    const isDecade = bin > 0 && Math.floor(Math.log10(edges[bin] ?? 1)) !== Math.floor(Math.log10(edges[bin - 1] || 1e-300));
    if (!(zeros && bin === 0) && !isDecade) return;
    context.fillText(zeros && bin === 0 ? "about 0" : tick(10 ** Math.floor(Math.log10(edges[bin]!))), LEFT - 6, y);
    free = y;
  });
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const step of axisSteps({ from, to }, wide)) {
    if (x(step) < width - 20) context.fillText(count(step), x(step), height - BOTTOM + 6);
  }
  return {
    at: (left, top) => {
      const step = from + (left - LEFT) / wide * (to - from), place = Math.floor((TOP + tall - top) / binHeight);
      const i = steps.findLastIndex(one => one <= step), bin = shown[place];
      if (i < 0 || bin === undefined || left < LEFT || left > LEFT + wide) return null;
      const amount = counts[i]![bin] ?? 0;
      return `step ${count(steps[i]!)}, ${bin === 0 ? "smallest magnitudes and zeros" : `from ${tick(+(edges[bin] ?? 0).toPrecision(3))}`}: ${count(amount)}`;
    },
  };
}
