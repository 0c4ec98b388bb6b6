// How numbers are written.

const whole = new Intl.NumberFormat("en");

/** A count or a step: 12,345. */
export function count(value: number): string {
  return whole.format(value);
}

/** A measurement with three digits: 0.0123, 4.5e-7. */
export function brief(value: number | null | undefined): string {
  if (value === null || value === undefined || value !== value) return "–";
  if (value === 0) return "0";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  const text = size >= 1e-3 && size < 1e5 ? String(Number(value.toPrecision(3))) : value.toExponential(2).replace(/\.?0+e/, "e");
  return text.replace("e+", "e").replace(/^-/, "−");
}

/** A round number on an axis: 10⁻³ is 1e-3. */
export function tick(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e-3 && size < 1e6 ? whole.format(Number(value.toPrecision(4)))
    : value.toExponential().replace("e+", "e").replace(/(\.\d\d)\d+e/, "$1e");
  return (size < 1 && size >= 1e-3 ? String(Number(value.toPrecision(4))) : text).replace(/^-/, "−");
}

/** A cell of a map in words. */
export function cellText(cell: number): string {
  if (cell !== cell) return "nothing recorded";
  if (cell === Infinity) return "not finite";
  if (cell === -Infinity) return "loading";
  return brief(cell);
}

export function many(number: number, one: string, more = `${one}s`): string {
  return `${count(number)} ${number === 1 ? one : more}`;
}

/** The steps of a cell that are in the run. */
export function stepsText(start: number, each: number, first: number, last: number): string {
  const from = Math.max(first, start), to = Math.min(last, start + each - 1);
  return to <= from ? `step ${count(from)}` : `steps ${count(from)}–${count(to)}`;
}
