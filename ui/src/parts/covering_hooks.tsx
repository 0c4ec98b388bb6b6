import type { Range, Run } from "../data/source";
import { account } from "../model/accounts";
import { count, many } from "../model/numbers";
import { readSelector } from "../model/selector";
import { planHooks } from "../model/series";
import { useView } from "./view";

interface Covering { hook: string; at: string; what: string }

/** The hooks that cover a target: they recorded it, or their selector in the plan matches it. */
export function CoveringHooks({ run, range, name }: { run: Run; range: Range; name: string }) {
  const { go } = useView();
  const hooks = covering(run, range, name);
  if (!hooks.length) return null;
  return (
    <section class="covering">
      <h3>Hooks</h3>
      <ul>
        {hooks.map(one => (
          <li key={one.hook}><button type="button" class="link" onClick={() => go({ page: "hooks" })}><bdi>{one.hook}</bdi></button>
            <span class="quiet"> {[one.at && `at ${one.at}`, one.what].filter(Boolean).join(" · ")}</span></li>))}
      </ul>
    </section>
  );
}

export function covering(run: Run, [start, end]: Range, name: string): Covering[] {
  const found = new Map<string, string>();
  for (const one of [...run.series, ...run.histograms] as { hook: string; ranges: Range[]; at?: string | null }[]) {
    if (one.ranges.some(([from, to]) => from < end && start < to)) found.set(one.hook, one.at || found.get(one.hook) || "");
  }
  for (const hook of planHooks(run) ?? []) {
    const on = Array.isArray(hook.on) ? hook.on.join(" ") : String(hook.on ?? "");
    const test = readSelector(on, run.types, () => true);
    if (found.has(hook.id) ? !found.get(hook.id) : test?.(name)) found.set(hook.id, String(hook.at ?? ""));
  }
  return [...found].map(([hook, at]) => {
    const entry = run.ledger.find(one => one.hook === hook), told = entry && account(entry);
    const what = !entry || !told ? "" : [`${entry.do}`, `fired ${count(entry.fired)}`, entry.changed ? `changed ${count(entry.changed)}` : "",
      told.skipped ? `skipped ${count(told.skipped)}` : "", told.asleep ? `${many(told.asleep, "target")} dormant` : ""].filter(Boolean).join(" · ");
    return { hook, at: entry?.at ?? at, what };
  });
}
