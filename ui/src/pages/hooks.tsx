import type { Run } from "../data/source";
import { account, type Account, imbalance, reasonsText } from "../model/accounts";
import { count, many } from "../model/numbers";
import { findSeries, planHooks, readPlan, seriesKey, TRAINING } from "../model/series";
import { Sign } from "../parts/sign";
import { useView } from "../parts/view";

/** What the hooks should do, and what they did. */
export function Hooks({ run }: { run: Run }) {
  const accounts = run.ledger.map(account);
  return (
    <div class="column">
      <Balance run={run} accounts={accounts} />
      {accounts.length > 0 && <LedgerTable accounts={accounts} />}
      <Changes run={run} accounts={accounts} />
      <Plan run={run} />
    </div>
  );
}

function Balance({ run, accounts }: { run: Run; accounts: Account[] }) {
  const audited = run.findings.filter(one => one.code.startsWith("TH7") && one.severity !== "note");
  const wrong = [...accounts.map(imbalance).filter(text => text !== null), ...audited.map(one => `${one.hook ?? "A hook"}: ${one.message ?? one.title} (${one.code}).`)];
  const failed = accounts.filter(one => one.entry.failed > 0);
  const fine = !wrong.length && !failed.length;
  return (
    <section class={`card sentence ${accounts.length ? fine ? "healthy" : "sick" : "unknown"}`} aria-label="Balance of the hooks">
      <p class="tone"><span class="tone-icon" aria-hidden="true">{accounts.length ? fine ? "✓" : "✕" : "?"}</span>
        {accounts.length ? fine ? "Balanced" : wrong.length ? "Imbalance" : "Failures" : "Not known"}</p>
      {!accounts.length && <h1>{run.live ? "The ledger is written when the run ends." : "This run has no ledger, so nobody can say whether its hooks fired."}</h1>}
      {wrong.map((text, i) => <h1 key={i}>{text}</h1>)}
      {failed.map(one => <p key={one.entry.hook}><Sign kind="error" text="failed" /> <code>{one.entry.hook}</code> raised an error {many(one.entry.failed, "time")}.</p>)}
      {accounts.length > 0 && fine && <h1>{accounts.length === 1 ? "The hook" : `Each of the ${many(accounts.length, "hook")}`} fired wherever it was due, or was skipped for a stated reason.</h1>}
      {run.dropped > 0 && <p><Sign kind="warning" text={`${many(run.dropped, "row")} dropped`} /> The numbers of these rows were measured, but not written.</p>}
    </section>
  );
}

function LedgerTable({ accounts }: { accounts: Account[] }) {
  return (
    <section class="card">
      <h2>Ledger</h2>
      <div class="wide" tabIndex={0} role="region" aria-label="Ledger">
        <table>
          <thead><tr><th scope="col">hook</th><th scope="col">at</th><th scope="col">action</th><th scope="col" class="n">sites</th>
            <th scope="col" class="n" title="Steps in which the hook was due">due</th><th scope="col" class="n" title="How often it should have fired at all sites">expected</th>
            <th scope="col" class="n">fired</th><th scope="col" class="n">skipped</th><th scope="col" class="n">changed</th><th scope="col" class="n">failed</th><th scope="col">reasons</th></tr></thead>
          <tbody>
            {accounts.map(one => (
              <tr key={one.entry.hook} class={one.missing || one.entry.failed ? "wrong" : ""}>
                <th scope="row"><code>{one.entry.hook}</code></th><td><code>{one.entry.at}</code></td><td><code>{one.entry.do}</code></td>
                <td class="n">{count(one.entry.sites)}</td><td class="n">{count(one.entry.due)}</td><td class="n">{count(one.expected)}</td>
                <td class="n">{count(one.entry.fired)}</td><td class="n">{count(one.skipped)}</td><td class="n">{count(one.entry.changed)}</td>
                <td class="n">{one.entry.failed ? <b class="bad-text">{count(one.entry.failed)}</b> : "0"}</td>
                <td class="reasons"><Reasons one={one} /></td>
              </tr>))}
          </tbody>
        </table>
      </div>
      <p class="quiet">A hook is in balance if expected = fired + skipped. A hook that is due in a step is expected to fire at each site that is not dormant.</p>
    </section>
  );
}

function Reasons({ one }: { one: Account }) {
  const lines: [string, string][] = [];
  if (one.missing) lines.push(["error", `${many(one.missing, "firing")} without explanation`]);
  if (one.uncalled) lines.push(["note", `${many(one.uncalled, "time")} the module was not called`]);
  if (one.more) lines.push(["note", "fired several times in a step, or in a step that did not end"]);
  if (one.skipped) lines.push(["note", `skipped ${reasonsText(one.reasons)}`]);
  if (one.asleep) lines.push(["note", `dormant ${reasonsText(one.dormant)}`]);
  return lines.length ? <ul class="plain">{lines.map(([kind, text], i) => <li key={i}>{kind === "error" ? <Sign kind="error" text={text} /> : text}</li>)}</ul> : <span class="quiet">–</span>;
}

/** What the modifiers changed. */
function Changes({ run, accounts }: { run: Run; accounts: Account[] }) {
  const { go } = useView();
  const modifiers = accounts.filter(one => one.entry.changed > 0);
  return (
    <section class="card">
      <h2>What the hooks changed</h2>
      {modifiers.length === 0 ? <p class="quiet">No hook returned a changed value.</p> : (
        <ul class="changes">
          {modifiers.map(({ entry }) => {
            const key = seriesKey({ hook: entry.hook, name: "change" }), share = entry.fired ? entry.changed / entry.fired : 0;
            return (
              <li key={entry.hook}>
                <p><code>{entry.hook}</code> ({entry.do}) changed {count(entry.changed)} of {many(entry.fired, "value")}, {(share * 100).toFixed(share < 0.1 ? 1 : 0)} %.
                  {typeof entry.measured === "number" && ` The change was measured ${many(entry.measured, "time")}.`}
                  {typeof entry.measured === "string" && ` Measured ${entry.measured}.`}</p>
                <span class="bar"><span class="bar-fill" style={{ width: `${Math.min(100, share * 100)}%` }} /></span>
                {findSeries(run, key) && <button type="button" class="link" onClick={() => go({ page: "flow", series: key, target: null })}>Show how much it changed</button>}
              </li>);
          })}
        </ul>)}
    </section>
  );
}

const text = (value: unknown): string => value === undefined || value === null ? "–"
  : Array.isArray(value) ? value.map(text).join(", ") : typeof value === "object" ? written(value as Record<string, unknown>) : String(value);

/** Write `{clip_norm: {max: 1}}` as `clip_norm(max=1)`. */
function written(value: Record<string, unknown>): string {
  return Object.entries(value).map(([key, inner]) => inner && typeof inner === "object" && !Array.isArray(inner)
    ? `${key}(${Object.entries(inner).map(([name, one]) => `${name}=${text(one)}`).join(", ")})` : `${key}=${text(inner)}`).join(", ");
}

function Plan({ run }: { run: Run }) {
  if (!run.plan) return <section class="card"><h2>Plan</h2><p class="quiet">The run has no plan.</p></section>;
  const hooks = planHooks(run), plan = readPlan(run) as { why?: unknown; hooks?: unknown[] } | null;
  const used = new Set(run.ledger.map(entry => entry.hook));
  return (
    <section class="card">
      <h2>Plan</h2>
      {run.plan.digest && <p class="quiet">digest <code class="digest">{run.plan.digest}</code></p>}
      {typeof plan?.why === "string" && <p><Sign kind="note" text="text only" /> {plan.why}</p>}
      {hooks ? (
        <div class="wide" tabIndex={0} role="region" aria-label="Plan">
          <table>
            <thead><tr><th scope="col">id</th><th scope="col">on</th><th scope="col">at</th><th scope="col">do</th><th scope="col">when</th></tr></thead>
            <tbody>{hooks.map(hook => (
              <tr key={hook.id}><th scope="row"><code>{hook.id}</code></th><td><code>{text(hook.on)}</code></td><td><code>{text(hook.at)}</code></td>
                <td><code>{text(hook.do)}</code></td><td><code>{hook.when ? text(hook.when) : "each step"}</code></td></tr>))}</tbody>
          </table>
        </div>
      ) : Array.isArray(plan?.hooks) ? <ul class="plan-text">{plan.hooks.map((one, i) => <li key={i}><code>{String(one)}</code></li>)}</ul> : null}
      {used.has(TRAINING) || !run.series.some(one => one.hook === TRAINING) ? null : <p class="quiet">The series <code>training</code> (loss, learning rate, gradient norms) is recorded in each step without a hook of the plan.</p>}
      <details><summary>Show the file</summary><pre tabIndex={0}>{plan ? JSON.stringify(plan, null, 2) : run.plan.text}</pre></details>
    </section>
  );
}
