import type { Run, Series } from "../data/source";

/** Names of series, the most useful first. */
const ORDER = ["norm", "rms", "ratio", "score", "change", "abs_max", "zeros", "nonfinite", "mean"];

/** The hook that records each step of the training itself. */
export const TRAINING = "training";

export function seriesKey(series: { hook: string; name: string }): string {
  return `${encodeURIComponent(series.hook)}/${encodeURIComponent(series.name)}`;
}

export function findSeries(run: Run, key: string | null): Series | null {
  return key ? run.series.find(series => seriesKey(series) === key) ?? null : null;
}

export function seriesTitle(series: { hook: string; name: string }): string {
  return `${series.hook} · ${series.name}`;
}

/** Return the series to choose from, the most useful first. Loss and rate are curves, so they come last. */
export function orderedSeries(run: Run): Series[] {
  const place = (series: Series) => {
    const known = ORDER.indexOf(series.name);
    const alone = series.ranges.length === 1 && series.ranges[0]![1] - series.ranges[0]![0] === 1 && run.targets.length > 1;
    return (alone ? 1000 : 0) + (known < 0 ? ORDER.length : known) * 10
      + (series.hook === TRAINING ? 0 : series.hook === "grads" ? 1 : 2);
  };
  return [...run.series].sort((a, b) => place(a) - place(b) || a.hook.localeCompare(b.hook) || a.name.localeCompare(b.name));
}

/** Return the series that the pages show at first: the first gradient norms, else the most useful. */
export function firstSeries(run: Run): Series | null {
  return orderedSeries(run)[0] ?? null;
}

/** Return the number of steps between two records of a series, from the series or from the plan. */
export function strideOf(run: Run, series: Series): number | null {
  if (series.every && series.every >= 1) return Math.floor(series.every);
  if (series.hook === TRAINING) return 1;
  const hook = planHooks(run)?.find(one => one.id === series.hook);
  if (!hook) return null;
  const every = (hook.when as { every?: unknown } | undefined)?.every;
  return typeof every === "number" && every >= 1 ? Math.floor(every) : 1;
}

export interface PlanHook { id: string; on?: unknown; at?: unknown; do?: unknown; when?: unknown; [field: string]: unknown }

/** Read the plan. A plan with functions is stored as text only, which gives null here. */
export function planHooks(run: Run): PlanHook[] | null {
  const plan = readPlan(run);
  const hooks = (plan as { hooks?: unknown } | null)?.hooks;
  return Array.isArray(hooks) && hooks.every(hook => typeof hook === "object" && hook !== null)
    ? hooks.map(hook => ({ ...hook, id: String((hook as PlanHook).id) })) : null;
}

export function readPlan(run: Run): unknown {
  if (!run.plan) return null;
  try {
    return JSON.parse(run.plan.text);
  } catch {
    return null;
  }
}

/** Return the most common distance between records, from a row of cells with one step each. */
export function strideInCells(cells: Float32Array): number {
  const gaps = new Map<number, number>();
  let before = -1;
  cells.forEach((cell, place) => {
    if (cell !== cell) return;
    if (before >= 0) gaps.set(place - before, (gaps.get(place - before) ?? 0) + 1);
    before = place;
  });
  let best = 1, most = 0;
  for (const [gap, count] of gaps) if (count > most || (count === most && gap < best)) [best, most] = [gap, count];
  return best;
}
