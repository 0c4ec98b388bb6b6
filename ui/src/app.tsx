import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Change, Run, RunHead, Source } from "./data/source";
import { withTitles } from "./model/titles";
import { formatState, isNewPlace, type Page, readState, type State } from "./model/state";
import { Compare } from "./pages/compare";
import { Flow } from "./pages/flow";
import { Hooks } from "./pages/hooks";
import { Overview } from "./pages/overview";
import { useAnswer } from "./parts/answer";
import { Header, PAGE_NAMES } from "./parts/header";
import { useTheme } from "./parts/theme";
import { Loading, Trouble } from "./parts/trouble";
import { type View, ViewContext } from "./parts/view";

/** Milliseconds between two updates of a live run. */
const BEAT = 400;
/** Milliseconds between two looks for new runs. */
const LOOK = 5000;

export function App({ source }: { source: Source }) {
  const [state, go] = useAddress();
  const { ink, flip } = useTheme();
  const [live, setLive] = useState<Record<string, Change>>({});
  const [connected, setConnected] = useState(true), [round, setRound] = useState(0);
  const heads = useAnswer(() => source.runs(), ["runs"], `${round} ${useTicks(source.follows ? LOOK : 0)}`);
  const listed = JSON.stringify(heads.value ?? []); // an equal list must not draw the page again
  const runs = useMemo(() => withTitles(JSON.parse(listed) as RunHead[]).map(head => ({ ...head, live: live[head.id]?.live ?? head.live })), [listed, live]);
  const id = state.run ?? runs[0]?.id ?? null;

  useEffect(() => {
    let pending: Record<string, Change> = {}, timer = 0;
    const stop = source.onChange(change => {
      pending[change.run] = change;
      // The first event shows at once; the following ones wait, so that the page draws a few times a second at most.
      if (!timer) timer = window.setTimeout(flush, 30);
    });
    const flush = () => {
      const found = pending;
      pending = {};
      if (Object.keys(found).length) setLive(before => ({ ...before, ...found }));
      timer = Object.keys(found).length ? window.setTimeout(flush, BEAT) : 0;
    };
    const drop = source.onConnection(now => {
      setConnected(before => {
        if (now && !before) setRound(n => n + 1); // events may have been lost
        return now;
      });
    });
    return () => {
      stop();
      drop();
      clearTimeout(timer);
    };
  }, [source]);

  const change = id ? live[id] : undefined;
  const answer = useAnswer(id ? () => source.run(id) : null, ["run", id], `${change?.revision ?? ""}${round}${runs.some(one => one.id === id)}`);
  const run = useSteady(answer.value, runs.find(one => one.id === id)?.title, change);
  useEffect(() => {
    const name = run ? `${run.title} · ` : "";
    document.title = `${name}${PAGE_NAMES[state.page]} · tenterhook view`;
  }, [run?.title, state.page]);

  const beat = run ? run.last : 0;
  const view = useMemo<View>(() => ({
    source, runs, state, go, ink, beat, changes: live, link: changed => formatState({ ...state, ...changed }),
  }), [source, runs, state, go, ink, beat, live]);

  return (
    <ViewContext.Provider value={view}>
      <a class="skip" href="#main" onClick={event => {
        event.preventDefault();
        document.getElementById("main")?.focus();
      }}>Skip to content</a>
      <Header run={run} id={id} connected={connected} flip={flip} />
      <main id="main" tabIndex={-1} class={`page page-${state.page}`} aria-label={PAGE_NAMES[state.page]}>
        {heads.error !== null && !heads.value && <Trouble error={heads.error} retry={heads.retry} />}
        {answer.error !== null && <Trouble error={answer.error} retry={answer.retry} />}
        {heads.loading && <Loading what="the list of runs" />}
        {heads.value?.length === 0 && (
          <div class="empty"><h1>No runs yet</h1><p>This folder has no recorded run. A training that <code>tenterhook run</code> records in it appears here.</p></div>)}
        {id && answer.loading && <Loading what="the run" />}
        {run && <CurrentPage run={run} page={state.page} />}
      </main>
    </ViewContext.Provider>
  );
}

function CurrentPage({ run, page }: { run: Run; page: Page }) {
  switch (page) {
    case "flow": return <Flow key={run.id} run={run} />;
    case "hooks": return <Hooks key={run.id} run={run} />;
    case "compare": return <Compare run={run} />;
    default: return <Overview key={run.id} run={run} />;
  }
}

/** Count how often so many milliseconds have passed. */
function useTicks(each: number): number {
  const [ticks, setTicks] = useState(0);
  useEffect(() => {
    if (!each) return undefined;
    const timer = setInterval(() => setTicks(n => n + 1), each);
    return () => clearInterval(timer);
  }, [each]);
  return ticks;
}

/** Keep the state in the fragment of the address. */
function useAddress(): [State, (change: Partial<State>) => void] {
  const [state, setState] = useState<State>(() => readState(location.hash));
  const now = useRef(state);
  useEffect(() => {
    const follow = () => {
      now.current = readState(location.hash);
      setState(now.current);
    };
    addEventListener("popstate", follow);
    addEventListener("hashchange", follow);
    return () => {
      removeEventListener("popstate", follow);
      removeEventListener("hashchange", follow);
    };
  }, []);
  const go = useCallback((change: Partial<State>) => {
    const before = now.current, after = { ...before, ...change }, address = formatState(after);
    now.current = after;
    if (address !== location.hash) {
      if (isNewPlace(before, after)) history.pushState(null, "", address);
      else history.replaceState(null, "", address);
    }
    setState(after);
  }, []);
  return [state, go];
}

/** Put the last change into the run. An unchanged list of targets stays the same object, so that its tree is kept. */
function useSteady(run: Run | null, title: string | undefined, change: Change | undefined): Run | null {
  const before = useRef<Run | null>(null);
  return useMemo(() => {
    if (!run) return null;
    const old = before.current;
    const same = old && old.id === run.id && old.targets.length === run.targets.length
      && old.targets.every((target, place) => target === run.targets[place]);
    const made = {
      ...run, title: title ?? run.title, targets: same ? old.targets : run.targets, live: change?.live ?? run.live,
      last: Math.max(run.last, change?.last ?? run.last),
    };
    before.current = made;
    return made;
  }, [run, title, change?.last, change?.live]);
}
