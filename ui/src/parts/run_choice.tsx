import { useMemo } from "preact/hooks";
import { Stroke } from "./curve_plot";
import { useView } from "./view";

export const MOST_RUNS = 8;

/** Colours after Okabe and Ito, which colour-blind readers can tell apart, and dashes as a second sign. */
const LIGHT = ["#0a5fb4", "#c2410c", "#0f7a54", "#a3317c", "#6b5200", "#4b5563", "#0e7490", "#7c3aed"];
const DARK = ["#7fb2ff", "#f59e5b", "#5fd3a3", "#f091c6", "#e3c55a", "#c3cad3", "#67d2e6", "#bfa2ff"];
const DASHES: (number[] | undefined)[] = [undefined, [7, 3], [2, 3], [9, 3, 2, 3], [4, 2], [12, 4], [1, 2], [6, 2, 2, 2, 2, 2]];

/** Return how to draw each run. */
export function useStyles(): { colour: string; dash?: number[] }[] {
  const { ink } = useView();
  return useMemo(() => (ink.theme === "dark" ? DARK : LIGHT).map((colour, place) => {
    const dash = DASHES[place];
    return dash ? { colour, dash } : { colour };
  }), [ink.theme]);
}

/** The runs to compare. The first two are compared in words and in the map. */
export function RunChoice({ ids }: { ids: string[] }) {
  const { runs, go } = useView();
  const styles = useStyles(), rest = runs.filter(one => !ids.includes(one.id));
  const set = (next: string[]) => go({ runs: next });
  return (
    <section class="card choice" aria-label="Runs to compare">
      <ol>
        {ids.map((id, place) => (
          <li key={id}>
            <Stroke colour={styles[place]!.colour} dash={styles[place]!.dash} />
            <bdi class="choice-name">{runs.find(one => one.id === id)?.title ?? id}</bdi>
            {place > 0 && <button type="button" class="small" title="Compare with this run first" aria-label={`Move ${runs.find(one => one.id === id)?.title ?? id} to the front`}
              onClick={() => set([...ids.slice(0, place - 1), id, ids[place - 1]!, ...ids.slice(place + 1)])}>↑</button>}
            {ids.length > 2 && <button type="button" class="small" aria-label={`Remove ${runs.find(one => one.id === id)?.title ?? id}`} title="Remove" onClick={() => set(ids.filter(one => one !== id))}>✕</button>}
          </li>))}
      </ol>
      {rest.length > 0 && ids.length < MOST_RUNS && (
        <label class="field"><span class="sr">Add a run</span>
          <select value="" onChange={event => event.currentTarget.value && set([...ids, event.currentTarget.value])}>
            <option value="">Add a run …</option>
            {rest.map(one => <option key={one.id} value={one.id}>{one.title}</option>)}
          </select></label>)}
    </section>
  );
}
