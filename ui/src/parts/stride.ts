import type { Run, Series } from "../data/source";
import { seriesKey, strideInCells, strideOf } from "../model/series";
import { useAnswer } from "./answer";
import { useView } from "./view";

/** Steps at the start of a series that tell how often it was recorded. */
const SAMPLE = 512;

/**
 * Return the number of steps between two records, or null while it is not known. A cell that covers fewer steps would
 * leave most of the map empty.
 */
export function useStride(run: Run, series: Series | null): number | null {
  const { source } = useView();
  const told = series ? strideOf(run, series) : 1;
  const first = series?.ranges[0]?.[0];
  const ask = series && told === null && first !== undefined;
  const { value, error } = useAnswer(ask ? async signal => strideInCells(await source.matrix({
    run: run.id, hook: series.hook, name: series.name, rows: [[first, first + 1]], first: run.first, each: 1,
    columns: Math.min(SAMPLE, run.last - run.first + 1), of: "maximum",
  }, signal)) : null, [run.id, series && seriesKey(series), ask]);
  const found = told ?? (ask ? value ?? (error !== null ? 1 : null) : 1);
  if (found === null || !series) return found;
  // A file may hold one value for many steps. A cell then covers whole values.
  const held = source.stepsPerValue(run.id, series.hook, series.name);
  return Math.ceil(found / held) * held;
}
