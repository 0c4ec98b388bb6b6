import type { Run } from "../data/source";
import { count } from "../model/numbers";
import { Code } from "./finding_page";
import { Sign } from "./sign";
import { useView } from "./view";

interface Event { step: number; kind: string; word: string; text: string; code: string | null; target: string | null }

/** Events that are listed; the strip shows all of them. */
const LISTED = 12;

export function eventsOf(run: Run): Event[] {
  const events: Event[] = run.flights.map(flight => ({
    step: flight.step, kind: "error", word: "trip", text: flight.reason, code: null, target: flight.suspects[0]?.target ?? null,
  }));
  for (const one of run.verdicts) {
    if (one.step !== null && one.step !== undefined) events.push({ step: one.step, kind: one.severity, word: "verdict", text: one.sentence, code: one.code, target: one.target || null });
  }
  for (const one of run.findings) {
    if (typeof one.step === "number") events.push({ step: one.step, kind: one.severity, word: "finding", text: one.message ?? one.title ?? "", code: one.code, target: one.target ?? null });
  }
  return events.sort((a, b) => a.step - b.step);
}

/** What happened at which step. */
export function TimeLine({ run }: { run: Run }) {
  const { go } = useView();
  const events = eventsOf(run), span = Math.max(1, run.last - run.first);
  if (!events.length) return null;
  const open = (event: Event) => {
    const around = Math.max(8, Math.min(50, Math.ceil(span / 20)));
    const known = event.target && run.targets.includes(event.target) ? event.target : null;
    go({ page: "flow", step: event.step, target: known, steps: [Math.max(run.first, event.step - around), Math.min(run.last, event.step + around)] });
  };
  return (
    <section class="card" aria-labelledby="time-line">
      <h2 id="time-line">Time line</h2>
      <div class="strip" aria-hidden="true">
        {events.map((event, i) => <span key={i} class={`pin ${event.kind}`} style={{ left: `${(event.step - run.first) / span * 100}%` }} title={`step ${event.step}: ${event.text}`} />)}
      </div>
      <div class="strip-ends" aria-hidden="true"><span>step {count(run.first)}</span><span>{count(run.last)}</span></div>
      <ol class="events">
        {events.slice(0, LISTED).map((event, i) => (
          <li key={i}>
            <button type="button" class="link step" onClick={() => open(event)} title="Show the steps around it on the page Flow">step {count(event.step)}</button>
            <Sign kind={event.kind} text={event.word} />
            <span class="event-text">{event.code && <><Code code={event.code} pages={run.pages} /> </>}{event.text}</span>
          </li>))}
      </ol>
      {events.length > LISTED && <p class="quiet">… and {count(events.length - LISTED)} more</p>}
    </section>
  );
}
