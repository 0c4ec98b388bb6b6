import { useMemo } from "preact/hooks";
import type { Finding, Run, Series, Verdict } from "../data/source";
import { count, many } from "../model/numbers";
import { useAnswer } from "../parts/answer";
import { CurvePlot } from "../parts/curve_plot";
import { Code } from "../parts/finding_page";
import { GradientFlow } from "../parts/gradient_flow";
import { Sign } from "../parts/sign";
import { TimeLine } from "../parts/time_line";
import { Trouble } from "../parts/trouble";
import { useView } from "../parts/view";

const TONES = {
  healthy: { icon: "✓", word: "Healthy" }, sick: { icon: "✕", word: "Problem" }, unknown: { icon: "?", word: "Not known" },
};

const RUNNING = { icon: "▸", word: "Running" };

/** What happened in the run: the sentence first, everything else below it. */
export function Overview({ run }: { run: Run }) {
  const curves = run.series.filter(one => one.hook === "training" && (one.name === "loss" || one.name === "rate"))
    .sort((a, b) => a.name.localeCompare(b.name));
  return (
    <div class="column">
      <Sentence run={run} />
      {curves.length > 0 && <div class="pair">{curves.map(series => <RootCurve key={series.name} run={run} series={series} />)}</div>}
      <TimeLine run={run} />
      <GradientFlow run={run} />
      <Others run={run} />
    </div>
  );
}

function Sentence({ run }: { run: Run }) {
  const tone = run.live && run.tone === "unknown" ? RUNNING : TONES[run.tone] ?? TONES.unknown, first = run.verdicts[0];
  return (
    <section class={`card sentence ${run.tone}`} aria-label="Result">
      <p class="tone"><span class="tone-icon" aria-hidden="true">{tone.icon}</span>{tone.word}{first && <> · <Code code={first.code} pages={run.pages} /></>}</p>
      <h1>{run.sentence}</h1>
      {first && <VerdictBody verdict={first} shown={run.sentence} />}
      <p class="quiet">
        steps {count(run.first)} to {count(run.last)} · {many(run.targets.length, "target")} · {many(run.series.length, "series", "series")}{run.ledger.length > 0 && <> · {many(run.ledger.length, "hook")}</>}
        {run.path && <> · <bdi class="path">{run.path}</bdi></>}
      </p>
      {run.dropped > 0 && <p><Sign kind="warning" text={`${many(run.dropped, "row")} dropped`} /> The sinks were too slow, so these numbers are not in the run.</p>}
    </section>
  );
}

function VerdictBody({ verdict, shown }: { verdict: Verdict; shown: string }) {
  return (
    <>
      {verdict.sentence !== shown && <p>{verdict.sentence}</p>}
      {verdict.evidence.length > 0 && <ul class="evidence">{verdict.evidence.map((one, i) => <li key={i}>{one}</li>)}</ul>}
      {verdict.remedy && <p class="remedy"><b>What to do:</b> {verdict.remedy}</p>}
    </>
  );
}

function RootCurve({ run, series }: { run: Run; series: Series }) {
  const { source, beat, ink, state, go } = useView();
  const target = series.ranges[0]?.[0] ?? -1;
  const { value, error, retry } = useAnswer(signal => source.curve(
    { run: run.id, hook: series.hook, name: series.name, target, first: run.first, last: run.last, points: 800 }, signal), [run.id, series.hook, series.name, target], beat);
  const loss = series.name === "loss", title = loss ? "Loss" : "Learning rate";
  const lines = useMemo(() => value ? [{ label: title, curve: value, colour: ink.accent }] : [], [value, ink.accent]);
  return (
    <section class="card" aria-label={title}>
      {error !== null && !value ? <Trouble error={error} retry={retry} />
        : <CurvePlot title={title} lines={lines} scale={loss ? state.curve : "linear"} first={run.first} last={run.last} step={null} height={190}
          {...(loss ? { onScale: (scale: "log" | "linear") => go({ curve: scale }) } : {})} />}
    </section>
  );
}

/** The other verdicts, and the findings about the hooks. Notes come last and are folded. */
function Others({ run }: { run: Run }) {
  const verdicts = run.verdicts.slice(1), grave = run.findings.filter(one => one.severity !== "note");
  const notes = run.findings.filter(one => one.severity === "note");
  if (!verdicts.length && !run.findings.length) {
    return <section class="card"><h2>Findings</h2><p><Sign kind="good" text="none" /> {run.verdicts.length ? "There are no further findings." : "No verdict about the training and no finding about the hooks."}</p></section>;
  }
  return (
    <section class="card">
      <h2>{verdicts.length ? "Other verdicts and findings" : "Findings"}</h2>
      <ul class="findings">
        {verdicts.map((one, i) => (
          <li key={`v${i}`}>
            <p><Sign kind={one.severity} text={one.severity} /> <Code code={one.code} pages={run.pages} /> {one.sentence}</p>
            {one.evidence.length > 0 && <ul class="evidence">{one.evidence.map((text, j) => <li key={j}>{text}</li>)}</ul>}
            {one.remedy && <p class="remedy"><b>What to do:</b> {one.remedy}</p>}
          </li>))}
        {grave.map((one, i) => <FindingItem key={`f${i}`} finding={one} pages={run.pages} />)}
      </ul>
      {notes.length > 0 && (
        <details open={!verdicts.length && !grave.length}>
          <summary>{many(notes.length, "note")}</summary>
          <ul class="findings">{notes.map((one, i) => <FindingItem key={i} finding={one} pages={run.pages} />)}</ul>
        </details>)}
    </section>
  );
}

function FindingItem({ finding, pages }: { finding: Finding; pages: Record<string, string> }) {
  const where = [finding.hook, finding.point, finding.target].filter(Boolean).join(" · ");
  const evidence = Array.isArray(finding.evidence) ? finding.evidence : finding.evidence ? [finding.evidence] : [];
  return (
    <li>
      <p><Sign kind={finding.severity} text={finding.severity} /> <Code code={finding.code} pages={pages} /> {finding.message ?? finding.title}</p>
      {where && <p class="quiet"><bdi>{where}</bdi></p>}
      {evidence.length > 0 && <ul class="evidence">{evidence.map((text, i) => <li key={i}>{text}</li>)}</ul>}
      {finding.remedy && <p class="remedy"><b>What to do:</b> <code>{finding.remedy}</code></p>}
    </li>
  );
}
