// The state of the page is in the fragment of its address, so that a link or a reload shows the same thing.

export type Page = "overview" | "flow" | "hooks" | "compare";
export const PAGES: Page[] = ["overview", "flow", "hooks", "compare"];

export interface State {
  page: Page;
  run: string | null;
  /** Runs on the page Compare. */
  runs: string[];
  /** Key of the series, see `seriesKey`. */
  series: string | null;
  /** First and last step on screen; null is the whole run. */
  steps: [number, number] | null;
  /** Module that the map is zoomed into. */
  inside: string | null;
  /** Modules that differ from how the tree opens by itself. */
  open: string[];
  shut: string[];
  /** Selected row, and selected step. */
  target: string | null;
  step: number | null;
  search: string;
  scale: "log" | "linear";
  range: [number, number] | null;
  of: "maximum" | "mean";
  curve: "log" | "linear";
}

export const START: State = {
  page: "overview", run: null, runs: [], series: null, steps: null, inside: null, open: [], shut: [], target: null,
  step: null, search: "", scale: "log", range: null, of: "maximum", curve: "log",
};

export function formatState(state: State): string {
  const query = new URLSearchParams();
  const add = (key: string, value: string | null, usual: string | null) => {
    if (value !== null && value !== usual) query.append(key, value);
  };
  add("page", state.page, null);
  add("run", state.run, null);
  state.runs.forEach(run => query.append("with", run));
  add("series", state.series, null);
  add("steps", state.steps && state.steps.map(step => String(+step.toFixed(3))).join("~"), null);
  add("in", state.inside, null);
  state.open.forEach(path => query.append("open", path));
  state.shut.forEach(path => query.append("shut", path));
  add("target", state.target, null);
  add("step", state.step === null ? null : String(state.step), null);
  add("search", state.search, "");
  add("scale", state.scale, START.scale);
  add("range", state.range && state.range.join("~"), null);
  add("of", state.of, START.of);
  add("curve", state.curve, START.curve);
  return `#${query.toString()}`;
}

export function readState(fragment: string): State {
  const query = new URLSearchParams(fragment.replace(/^#/, ""));
  const one = <T extends string>(key: string, allowed: readonly T[], usual: T): T =>
    allowed.find(value => value === query.get(key)) ?? usual;
  return {
    page: one("page", PAGES, START.page),
    run: query.get("run"),
    runs: query.getAll("with"),
    series: query.get("series"),
    steps: pair(query.get("steps"), false),
    inside: query.get("in"),
    open: query.getAll("open"),
    shut: query.getAll("shut"),
    target: query.get("target"),
    step: number(query.get("step")),
    search: query.get("search") ?? "",
    scale: one("scale", ["log", "linear"], START.scale),
    range: pair(query.get("range"), true),
    of: one("of", ["maximum", "mean"], START.of),
    curve: one("curve", ["log", "linear"], START.curve),
  };
}

/** A change of these is a new place to go back to; other changes replace the current place. */
const PLACES: (keyof State)[] = ["page", "run", "series", "inside", "target"];

export function isNewPlace(before: State, after: State): boolean {
  return PLACES.some(key => before[key] !== after[key]);
}

/** Open or close a module. Only differences from how the tree opens by itself are stored. */
export function toggled(state: State, path: string, open: boolean, usually: boolean): Pick<State, "open" | "shut"> {
  const without = (list: string[]) => list.filter(one => one !== path);
  return {
    open: open && !usually ? [...without(state.open), path] : without(state.open),
    shut: !open && usually ? [...without(state.shut), path] : without(state.shut),
  };
}

function number(text: string | null): number | null {
  const value = text === null || text === "" ? NaN : Number(text);
  return Number.isFinite(value) ? value : null;
}

function pair(text: string | null, strict: boolean): [number, number] | null {
  const [low, high, ...more] = text?.split("~").map(number) ?? [];
  return low == null || high == null || more.length || (strict ? low >= high : low > high) ? null : [low, high];
}
