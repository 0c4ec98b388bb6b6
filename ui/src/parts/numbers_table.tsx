import type { Run, Series } from "../data/source";
import { brief, count } from "../model/numbers";
import { seriesKey } from "../model/series";
import { useAnswer } from "./answer";
import { useRests } from "./settled";
import { Trouble } from "./trouble";
import { useView } from "./view";

/** All recorded numbers of a target. A row chooses the series of the map. */
export function NumbersTable({ run, target, series }: { run: Run; target: number; series: Series }) {
  const { source, go, beat } = useView();
  const rests = useRests(`${run.id} ${target}`);
  const { value, error, retry } = useAnswer(rests ? () => source.numbers(run.id, target) : null, [run.id, target], beat);
  if (error !== null) return <Trouble error={error} retry={retry} />;
  if (!value) return <p class="quiet">Loading the statistics …</p>;
  if (!value.length) return <p class="quiet">No numbers of this target were recorded.</p>;
  return (
    <div class="wide" tabIndex={0} role="region" aria-label="Statistics">
      <table class="numbers">
        <thead><tr><th scope="col">series</th><th scope="col">last</th><th scope="col">min</th><th scope="col">mean</th><th scope="col">max</th><th scope="col" title="how many values were recorded, and how many of them are not finite">count</th></tr></thead>
        <tbody>
          {value.map(one => (
            <tr key={seriesKey(one)} class={seriesKey(one) === seriesKey(series) ? "current" : ""}>
              <th scope="row"><button type="button" class="link" onClick={() => go({ series: seriesKey(one), range: null })} title="Show this series in the map">{one.hook} · {one.name}</button></th>
              <td title={`step ${count(one.last_step)}`}>{one.last === null && one.nonfinite ? <span class="bad-text">not finite</span> : brief(one.last)}</td>
              <td>{brief(one.minimum)}</td><td>{brief(one.mean)}</td><td>{brief(one.maximum)}</td><td>{count(one.count)}{one.nonfinite > 0 && <b class="bad-text" title={`${count(one.nonfinite)} not finite`}> ▨{count(one.nonfinite)}</b>}</td>
            </tr>))}
        </tbody>
      </table>
      {!source.follows && <p class="quiet">A report file holds magnitudes, so these numbers have no signs.</p>}
    </div>
  );
}
