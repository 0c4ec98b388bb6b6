import { useEffect, useRef, useState } from "preact/hooks";
import type { Run, Series } from "../data/source";
import { brief, count } from "../model/numbers";
import { orderedSeries, seriesKey, seriesTitle } from "../model/series";
import { type MapHandle, saveMapPicture, saveMapTable } from "./map_export";
import { useMedia } from "./row_height";
import { useView } from "./view";

export interface FlowToolbarProps {
  run: Run; series: Series; handle: { current: MapHandle | null }; matches: number | null; total: number;
  zoom: (factor: number) => void; all: () => void;
}

/** What the map shows: series, targets, steps and colours. */
export function FlowToolbar({ run, series, handle, matches, total, zoom, all }: FlowToolbarProps) {
  const { go } = useView();
  const narrow = useMedia("(max-width: 700px)");
  return (
    <div class="toolbar" role="group" aria-label="What the map shows">
      <label class="field"><span class="sr">Series</span>
        <select value={seriesKey(series)} onChange={event => go({ series: event.currentTarget.value, range: null })}>
          {orderedSeries(run).map(one => <option key={seriesKey(one)} value={seriesKey(one)}>{seriesTitle(one)}</option>)}
        </select>
      </label>
      <Search matches={matches} total={total} />
      <span class="group" role="group" aria-label="Zoom">
        <button type="button" onClick={() => zoom(0.5)} aria-label="Zoom in" title="Zoom in (+)">+</button>
        <button type="button" onClick={() => zoom(2)} aria-label="Zoom out" title="Zoom out (−)">−</button>
        <button type="button" onClick={all} title="Show all steps (0)">All steps</button>
      </span>
      {narrow ? <details class="more"><summary>Options</summary><div class="more-box"><Options handle={handle} /></div></details> : <Options handle={handle} />}
    </div>
  );
}

function Search({ matches, total }: { matches: number | null; total: number }) {
  const { state, go } = useView();
  const [text, setText] = useState(state.search), timer = useRef(0), box = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (document.activeElement !== box.current) setText(state.search);
  }, [state.search]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const change = (next: string) => {
    setText(next);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => go({ search: next }), 120);
  };
  return (
    <span class="search">
      <input ref={box} type="search" value={text} placeholder="Search targets" aria-label="Search targets: name, glob or type" spellcheck={false} autocomplete="off"
        title="A name, part of a name, a glob (* within a part, ** across parts) or type:Class. ! excludes. Several patterns: comma or space."
        onInput={event => change(event.currentTarget.value)} onKeyDown={event => event.key === "Escape" && change("")} />
      <span class={matches === 0 ? "matches bad-text" : "matches"} role="status">{matches === null ? "" : `${count(matches)} of ${count(total)}`}</span>
    </span>
  );
}

function Options({ handle }: { handle: { current: MapHandle | null } }) {
  const { state, go } = useView();
  return (
    <>
      <label class="field"><span class="sr">Scale</span>
        <select value={state.scale} onChange={event => go({ scale: event.currentTarget.value as "log" | "linear", range: null })}>
          <option value="log">log scale</option><option value="linear">linear scale</option>
        </select>
      </label>
      <label class="field"><span class="sr">Cell</span>
        <select value={state.of} onChange={event => go({ of: event.currentTarget.value as "maximum" | "mean" })}>
          <option value="maximum">largest</option><option value="mean">mean</option>
        </select>
      </label>
      <Ends handle={handle} />
      <span class="group" role="group" aria-label="Export">
        <button type="button" onClick={() => handle.current && saveMapPicture(handle.current)} title="Save the map on screen as a picture">PNG</button>
        <button type="button" onClick={() => handle.current && void saveMapTable(handle.current)} title="Save all rows, with the steps on screen, as a table">CSV</button>
      </span>
    </>
  );
}

/** The ends of the colours: those of the whole run, or fixed numbers. */
function Ends({ handle }: { handle: { current: MapHandle | null } }) {
  const { state, go } = useView();
  if (!state.range) {
    return <button type="button" onClick={() => go({ range: handle.current?.range ?? [1e-6, 1] })} title="Give the colours fixed ends, to compare views">Fix colours</button>;
  }
  const set = (place: 0 | 1, text: string) => {
    const value = Number(text), range: [number, number] = [...state.range!];
    range[place] = value;
    if (Number.isFinite(value) && range[0] < range[1] && (state.scale !== "log" || range[0] > 0)) go({ range });
  };
  return (
    <span class="group ends" role="group" aria-label="Ends of the colours">
      {([0, 1] as const).map(place => (
        <input key={place} type="text" inputMode="decimal" size={7} aria-label={place ? "Highest colour" : "Lowest colour"}
          value={brief(state.range![place]).replace("−", "-")} onChange={event => set(place, event.currentTarget.value)} />))}
      <button type="button" onClick={() => go({ range: null })} title="Choose the ends from the data">Auto</button>
    </span>
  );
}
