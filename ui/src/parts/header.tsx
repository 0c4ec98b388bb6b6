import type { Run } from "../data/source";
import { count } from "../model/numbers";
import { type Page, PAGES } from "../model/state";
import { useView } from "./view";

export const PAGE_NAMES: Record<Page, string> = { overview: "Overview", flow: "Flow", hooks: "Hooks", compare: "Compare" };

/** The run, the pages and the state of the connection. */
export function Header({ run, id, connected, flip }: { run: Run | null; id: string | null; connected: boolean; flip: () => void }) {
  const { runs, state, go, link, ink } = useView();
  const dark = ink.theme === "dark";
  return (
    <header class="top">
      <div class="top-run">
        <span class="brand">tenterhook</span>
        <label class="run-choice">
          <span class="sr">Run</span>
          <select value={id ?? ""} disabled={!runs.length} onChange={event =>
            go({ run: event.currentTarget.value, steps: null, inside: null, open: [], shut: [], step: null, range: null })}>
            {runs.map(one => <option key={one.id} value={one.id}>{one.title}{one.live ? " (live)" : ""}</option>)}
          </select>
        </label>
        {run && <span class="facts" title={run.path}>steps {count(run.first)}–{count(run.last)}<span class="wide-only"> · {count(run.targets.length)} targets</span></span>}
        {run?.live && connected && <span class="badge live" role="status"><span class="dot" aria-hidden="true" />live</span>}
        {!connected && <span class="badge lost" role="alert"><span aria-hidden="true">⚠ </span>no connection, retrying</span>}
        <button type="button" class="theme" onClick={flip} aria-label={`Use the ${dark ? "light" : "dark"} theme`} title={`Use the ${dark ? "light" : "dark"} theme`}>
          <span aria-hidden="true">{dark ? "☀" : "☾"}</span>
        </button>
      </div>
      <nav class="tabs" aria-label="Pages">
        {PAGES.map(page => (
          <a key={page} href={link({ page })} aria-current={state.page === page ? "page" : undefined} onClick={event => {
            if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
            event.preventDefault();
            go({ page });
          }}>{PAGE_NAMES[page]}</a>))}
      </nav>
    </header>
  );
}
