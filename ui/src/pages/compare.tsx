import { useEffect, useMemo, useState } from "preact/hooks";
import type { Curve, Run, Source } from "../data/source";
import type { Line } from "../draw/curve";
import { orderedSeries, seriesKey, seriesTitle, TRAINING } from "../model/series";
import { useAnswer } from "../parts/answer";
import { CurvePlot } from "../parts/curve_plot";
import { MOST_RUNS, RunChoice, useStyles } from "../parts/run_choice";
import { RatioMap } from "../parts/ratio_map";
import { useThrottled } from "../parts/settled";
import { Sign } from "../parts/sign";
import { Loading, Trouble } from "../parts/trouble";
import { useView } from "../parts/view";

const POINTS = 600;
/** Milliseconds between two comparisons of runs that are live. */
const COMPARE = 3000;

/** Two to eight runs beside each other. */
export function Compare({ run }: { run: Run }) {
  const { state, source, runs } = useView();
  const known = state.runs.filter((id, place) => runs.some(one => one.id === id) && state.runs.indexOf(id) === place).slice(0, MOST_RUNS);
  const other = runs.find(one => one.id !== run.id)?.id;
  const ids = known.length ? known : other ? [run.id, other] : [run.id];
  const loaded = useRuns(source, ids, run);
  return (
    <div class="column compare">
      <RunChoice ids={ids} />
      {ids.length < 2 ? <section class="card"><p>{runs.length < 2 ? "There is only one run here. Open a folder with several runs to compare them." : "Choose at least two runs."}</p></section>
        : loaded.error !== null && !loaded.value ? <Trouble error={loaded.error} retry={loaded.retry} />
          : !loaded.value ? <Loading what="the runs" /> : <Comparison runs={loaded.value} />}
    </div>
  );
}

function useRuns(source: Source, ids: string[], shown: Run) {
  const { runs, changes } = useView();
  const revisions = ids.map(id => changes[id]?.revision ?? "").join(" ");
  const answer = useAnswer(() => Promise.all(ids.map(id => id === shown.id ? shown : source.run(id))), ["runs", ...ids], revisions);
  const value = useMemo(() => answer.value?.map(run => run.id === shown.id ? shown : {
    ...run, title: runs.find(one => one.id === run.id)?.title ?? run.title, live: changes[run.id]?.live ?? run.live,
    last: Math.max(run.last, changes[run.id]?.last ?? run.last),
  }) ?? null, [answer.value, runs, changes, shown]);
  return { ...answer, value };
}

/** Return a text that changes when one of the runs has new steps. */
const progress = (runs: Run[]) => runs.map(run => `${run.last} ${run.live}`).join(", ");

function Comparison({ runs }: { runs: Run[] }) {
  return (
    <>
      <DifferenceLine a={runs[0]!} b={runs[1]!} />
      <Curves runs={runs} />
      <RatioMap key={`${runs[0]!.id} ${runs[1]!.id}`} a={runs[0]!} b={runs[1]!} />
    </>
  );
}

function DifferenceLine({ a, b }: { a: Run; b: Run }) {
  const { source, go } = useView();
  const beat = useThrottled(progress([a, b]), COMPARE);
  const { value, error, retry } = useAnswer(() => source.difference(a.id, b.id), [a.id, b.id], beat);
  const target = value?.target, live = a.live || b.live;
  return (
    <section class={`card sentence ${value?.equal && !live ? "healthy" : "unknown"}`} aria-label="Difference">
      {error !== null && !value ? <Trouble error={error} retry={retry} /> : !value ? <Loading what="the difference" /> : (
        <>
          <p class="tone"><span class="tone-icon" aria-hidden="true">{value.equal ? "=" : value.equal === false ? "≠" : "?"}</span>
            {value.equal ? live ? "Equal so far" : "Equal" : value.equal === false ? "Different" : "Not known"}<span class="quiet"> · <bdi>{a.title}</bdi> and <bdi>{b.title}</bdi></span></p>
          <h1>{value.sentence}</h1>
          {target && a.targets.includes(target) && value.step !== null && (
            <p><button type="button" class="link" onClick={() => go({ page: "flow", run: a.id, target, step: value.step, steps: null })}>Show this place on the page Flow</button></p>)}
        </>)}
    </section>
  );
}

/** The loss, and one chosen series of one target. */
function Curves({ runs }: { runs: Run[] }) {
  const { state, go } = useView();
  const loss = runs.some(one => one.series.some(series => series.hook === TRAINING && series.name === "loss"));
  const series = runs[0]!.series.find(one => seriesKey(one) === state.series) ?? orderedSeries(runs[0]!).find(one => !(one.hook === TRAINING && one.name === "loss"));
  const names = useMemo(() => series ? series.ranges.flatMap(([start, end]) => runs[0]!.targets.slice(start, end)) : [], [series, runs[0]!.targets]);
  const wanted = state.target?.replace(/^=/, "") ?? null, target = wanted !== null && names.includes(wanted) ? wanted : names[0];
  return (
    <div class="pair">
      {loss && <section class="card" aria-label="Loss"><Overlaid runs={runs} hook={TRAINING} name="loss" target={null} title="Loss" /></section>}
      {series && target !== undefined && (
        <section class="card" aria-label="Chosen series">
          <div class="toolbar">
            <label class="field"><span class="sr">Series</span>
              <select value={seriesKey(series)} onChange={event => go({ series: event.currentTarget.value, range: null })}>
                {orderedSeries(runs[0]!).map(one => <option key={seriesKey(one)} value={seriesKey(one)}>{seriesTitle(one)}</option>)}
              </select></label>
            <TargetChoice names={names} target={target} />
          </div>
          <Overlaid runs={runs} hook={series.hook} name={series.name} target={target} title={target} />
        </section>)}
    </div>
  );
}

/** A text with suggestions: a list of all targets could have tens of thousands of entries. */
function TargetChoice({ names, target }: { names: string[]; target: string }) {
  const { go } = useView();
  const [text, setText] = useState(target);
  useEffect(() => setText(target), [target]);
  const near = useMemo(() => names.filter(name => name.toLowerCase().includes(text.toLowerCase())).slice(0, 40), [names, text]);
  return (
    <span class="search">
      <input type="text" list="near" value={text} aria-label="Target" aria-invalid={near.length === 0} spellcheck={false} autocomplete="off" onFocus={event => event.currentTarget.select()}
        onInput={event => {
          const next = event.currentTarget.value;
          setText(next);
          if (names.includes(next)) go({ target: next });
        }} onBlur={() => setText(target)} />
      {near.length === 0 && <span class="bad-text">No target has this in its name.</span>}
      <datalist id="near">{near.map(name => <option key={name} value={name} />)}</datalist>
    </span>
  );
}

function Overlaid({ runs, hook, name, target, title }: { runs: Run[]; hook: string; name: string; target: string | null; title: string }) {
  const { source, state, go } = useView();
  const styles = useStyles(), beat = progress(runs);
  const first = Math.min(...runs.map(one => one.first)), last = Math.max(...runs.map(one => one.last));
  const { value, error, retry } = useAnswer(signal => Promise.all(runs.map(async (run): Promise<Curve | null> => {
    const series = run.series.find(one => one.hook === hook && one.name === name);
    const place = target === null ? series?.ranges[0]?.[0] ?? -1 : run.targets.indexOf(target);
    if (!series || place < 0 || !series.ranges.some(([start, end]) => start <= place && place < end)) return null;
    return source.curve({ run: run.id, hook, name, target: place, first: run.first, last: run.last, points: POINTS }, signal);
  })), [hook, name, target, ...runs.map(run => run.id)], beat);
  const lines = useMemo((): Line[] => (value ?? []).flatMap((curve, place) =>
    curve && runs[place] ? [{ label: runs[place].title, curve, ...styles[place % styles.length]! }] : []), [value, styles]);
  const missing = value ? runs.filter((_, place) => !value[place]) : [];
  if (error !== null && !value) return <Trouble error={error} retry={retry} />;
  return (
    <>
      <CurvePlot title={title} lines={lines} scale={state.curve} first={first} last={last} step={null} height={220} onScale={scale => go({ curve: scale })} />
      {missing.length > 0 && <p class="curve-note"><Sign kind="note" text="missing" /> {missing.map(one => one.title).join(", ")} did not record it.</p>}
    </>
  );
}
