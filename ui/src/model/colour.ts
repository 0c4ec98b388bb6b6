// Colours of cells. A colour is an integer with the bytes red, green, blue, alpha in memory order (little-endian).

export type Scale = "log" | "linear" | "ratio";

export interface Colours { zero: number; nothing: number; waiting: number; bad: number }

const pack = (red: number, green: number, blue: number) => (255 << 24 | blue << 16 | green << 8 | red) >>> 0;

/** Read `#rrggbb`. */
export function colour(hex: string): number {
  const value = parseInt(hex.trim().slice(1), 16);
  return pack(value >> 16 & 255, value >> 8 & 255, value & 255);
}

export function css(value: number): string {
  return `rgb(${value & 255} ${value >> 8 & 255} ${value >> 16 & 255})`;
}

/** Viridis at even distances. It is perceptually uniform, and colour-blind readers can tell its order. */
const VIRIDIS = [
  "#440154", "#48186a", "#472d7b", "#424086", "#3b528b", "#33638d", "#2c728e", "#26828e", "#21918c", "#1fa088",
  "#28ae80", "#3fbc73", "#5ec962", "#84d44b", "#addc30", "#d8e219", "#fde725",
];

/** Blue, neutral, orange: two hues that colour-blind readers can tell apart. */
const DIVERGING_LIGHT = ["#053061", "#2166ac", "#5a9bd0", "#a9cfe6", "#f4f4f2", "#fbc98e", "#e58a2e", "#b35806", "#7a3a02"];
const DIVERGING_DARK = ["#9fd0f5", "#5aa5e0", "#2f74b5", "#1e4a78", "#24272c", "#6e4413", "#b06a15", "#e8963a", "#ffc98a"];

export const SHADES = 256;

export function shades(hexes: string[]): Uint32Array {
  const stops = hexes.map(colour);
  return Uint32Array.from({ length: SHADES }, (_, i) => {
    const at = i / (SHADES - 1) * (stops.length - 1), below = Math.min(stops.length - 2, Math.floor(at)), part = at - below;
    const mix = (shift: number) =>
      Math.round((stops[below]! >> shift & 255) * (1 - part) + (stops[below + 1]! >> shift & 255) * part);
    return pack(mix(0), mix(8), mix(16));
  });
}

export const viridis = shades(VIRIDIS);
export const divergingLight = shades(DIVERGING_LIGHT);
export const divergingDark = shades(DIVERGING_DARK);

/** Return where a value is between the ends of a scale, from 0 to 1. */
export function position(value: number, [low, high]: [number, number], scale: Scale): number {
  const at = scale === "log" ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  return at !== at ? 0 : Math.min(1, Math.max(0, at));
}

/** Return a function that gives the colour of a cell. */
export function painter(range: [number, number], scale: Scale, palette: Uint32Array, colours: Colours): (cell: number) => number {
  const [low, high] = range, log = scale === "log";
  const from = log ? Math.log(low) : low, factor = (SHADES - 1) / ((log ? Math.log(high) : high) - from);
  return cell => {
    if (cell !== cell) return colours.nothing;
    if (cell === Infinity) return colours.bad;
    if (cell === -Infinity) return colours.waiting;
    if (cell === 0 && scale !== "ratio") return colours.zero;
    const at = ((log ? Math.log(cell) : cell) - from) * factor;
    return palette[at <= 0 ? 0 : at >= SHADES - 1 ? SHADES - 1 : at + 0.5 | 0]!;
  };
}

/** Choose the ends of a scale from cells. Rare extremes do not count, and a logarithmic scale ends at whole decades. */
export function rangeOf(cells: Float32Array, scale: Scale): [number, number] {
  const there = cells.filter(cell => Number.isFinite(cell) && (scale === "ratio" || cell > 0)).sort();
  if (!there.length) return scale === "ratio" ? [-1, 1] : scale === "log" ? [0.1, 1] : [0, 1];
  const low = there[Math.floor((there.length - 1) * 0.01)]!, high = there[Math.ceil((there.length - 1) * 0.995)]!;
  if (scale === "ratio") {
    const most = Math.max(1, Math.ceil(Math.max(Math.abs(low), Math.abs(high))));
    return [-most, most];
  }
  if (scale === "linear") return [0, high];
  const from = Math.floor(Math.log10(low) + 1e-6), to = Math.ceil(Math.log10(high) - 1e-6);
  return [10 ** from, 10 ** Math.max(to, from + 1)];
}

/** Return up to `most` round numbers between the ends of a scale. */
export function ticksOf([low, high]: [number, number], scale: Scale, most = 6): number[] {
  if (scale === "log") {
    const from = Math.ceil(Math.log10(low) - 1e-9), to = Math.floor(Math.log10(high) + 1e-9);
    if (to - from >= 1) {
      const each = Math.max(1, Math.ceil((to - from) / (most - 1)));
      return Array.from({ length: Math.floor((to - from) / each) + 1 }, (_, i) => Number(`1e${from + i * each}`));
    }
    return [low, Math.sqrt(low * high), high];
  }
  const each = roundStep((high - low) / (most - 1));
  const ticks: number[] = [];
  for (let i = Math.ceil(low / each - 1e-9); i * each <= high + each * 1e-9; i++) ticks.push(+(i * each).toPrecision(12));
  return ticks;
}

/** Return 1, 2 or 5 times a power of ten that is at least `least`. */
export function roundStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map(times => times * power).find(step => step >= least * (1 - 1e-9)) ?? power * 10;
}
