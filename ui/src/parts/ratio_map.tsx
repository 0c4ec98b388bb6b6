import { useCallback, useMemo, useRef } from "preact/hooks";
import type { Range, Run, Series } from "../data/source";
import { align, largestOf, rangesIn, ratio, ratioText } from "../model/alignment";
import { divergingDark, divergingLight } from "../model/colour";
import { Cover } from "../model/cover";
import { count, many } from "../model/numbers";
import { levelAtFirst, listRows, type Row } from "../model/rows";
import { orderedSeries, seriesKey, seriesTitle } from "../model/series";
import { toggled } from "../model/state";
import { whole } from "../model/steps";
import type { CellRequest, Fetch } from "../model/tiles";
import { makeTree, pathOf, ROOT } from "../model/tree";
import { HeatMap } from "./map";
import { type MapHandle, saveMapPicture, saveMapTable } from "./map_export";
import { useRowHeight } from "./row_height";
import { useStride } from "./stride";
import { Loading } from "./trouble";
import { useView } from "./view";
import { useWindow } from "./window";

/** Maximum number of rows that a request may have. */
const MOST_ROWS = 4096;
/** Names that are listed. */
const LISTED = 200;

/** How many times larger a number is in the second run, by target and step. */
export function RatioMap({ a, b }: { a: Run; b: Run }) {
  const { state } = useView();
  const both = orderedSeries(a).filter(one => b.series.some(other => seriesKey(other) === seriesKey(one)));
  const series = both.find(one => seriesKey(one) === state.series) ?? both[0];
  const other = series && b.series.find(one => seriesKey(one) === seriesKey(series));
  if (!series || !other) return <section class="card"><h2>Ratio</h2><p class="quiet">The two runs have no series in common.</p></section>;
  return <RatioOf a={a} b={b} seriesA={series} seriesB={other} />;
}

function RatioOf({ a, b, seriesA, seriesB }: { a: Run; b: Run; seriesA: Series; seriesB: Series }) {
  const { source, state, go, ink } = useView();
  const handle = useRef<MapHandle | null>(null), rowHeight = useRowHeight();
  const key = seriesKey(seriesA);
  const found = useMemo(() => align(a, b, seriesA, seriesB), [a.targets, b.targets, key]);
  const tree = useMemo(() => makeTree(found.names), [found]);
  const cover = useMemo(() => new Cover(found.names.length, [[0, found.names.length]]), [found]);
  const level = useMemo(() => levelAtFirst(tree, cover, ROOT), [tree, cover]);
  const rows = useMemo(() => {
    const open = new Set(state.open), shut = new Set(state.shut);
    return listRows(tree, cover, ROOT, (node, at) => open.has(pathOf(tree, node)) || (at < level && !shut.has(pathOf(tree, node))));
  }, [tree, cover, level, state.open.join("\n"), state.shut.join("\n")]);
  const strideA = useStride(a, seriesA), strideB = useStride(b, seriesB);
  const stride = strideA && strideB ? Math.max(strideA, strideB) : null;
  const first = Math.max(a.first, b.first), last = Math.min(a.last, b.last);
  const [shown, move] = useWindow(state.steps, first, Math.max(first, last), useCallback(steps => go({ steps }), [go]));

  const fetch = useCallback<Fetch>(async (request: CellRequest, signal) => {
    const ask = async (run: Run, places: Int32Array) => {
      const ranges: Range[] = [], parts = request.rows.map(row => rangesIn(places, row.ranges).map(range => ranges.push(range) - 1));
      const cells = new Float32Array(ranges.length * request.columns);
      for (let at = 0; at < ranges.length; at += MOST_ROWS) {
        const some = ranges.slice(at, at + MOST_ROWS);
        cells.set(await source.matrix({
          run: run.id, hook: seriesA.hook, name: seriesA.name, rows: some, first: request.first, each: request.each, columns: request.columns, of: "maximum",
        }, signal), at * request.columns);
      }
      return parts.map(rowsOf => largestOf(cells, rowsOf, request.columns));
    };
    const [ofA, ofB] = await Promise.all([ask(a, found.inA), ask(b, found.inB)]);
    return Float32Array.from({ length: request.rows.length * request.columns }, (_, at) => {
      const row = Math.floor(at / request.columns), column = at % request.columns;
      return ratio(ofA[row]![column]!, ofB[row]![column]!);
    });
  }, [source, a.id, b.id, found, key]);

  return (
    <section class="card ratio" aria-labelledby="ratio-title">
      <div class="ratio-head">
        <h2 id="ratio-title">{seriesTitle(seriesA)}: <bdi>{b.title}</bdi> divided by <bdi>{a.title}</bdi></h2>
        <span class="toolbar">
          <button type="button" onClick={() => move(whole(first, last))}>All steps</button>
          <span class="group" role="group" aria-label="Export">
            <button type="button" onClick={() => handle.current && saveMapPicture(handle.current)}>PNG</button>
            <button type="button" onClick={() => handle.current && void saveMapTable(handle.current)}>CSV</button>
          </span>
        </span>
      </div>
      <OnlyOne run={a} names={found.onlyA} />
      <OnlyOne run={b} names={found.onlyB} />
      {(a.first !== b.first || a.last !== b.last) && last >= first && <p class="quiet">Only the steps {count(first)} to {count(last)} are in both runs.</p>}
      {last < first ? <p>The two runs have no steps in common.</p> : !found.names.length ? <p>The two runs have no targets in common.</p>
        : stride === null ? <Loading what="the map" /> : (
          <HeatMap key={key} name={`${seriesTitle(seriesA)}, ${b.title} divided by ${a.title}`} rows={rows} fetch={fetch} first={first} last={last} stride={stride} revision={a.revision + b.revision}
            window={shown} onWindow={move} scale="ratio" range={null} palette={ink.theme === "dark" ? divergingDark : divergingLight} words={ratioText} types={a.types}
            isTree rowHeight={rowHeight} selected={state.target} step={state.step} handle={handle} legendTitle="doublings" note="0 is equal, 1 is twice as large, −1 is half"
            onSelect={(row: Row, step) => go(step === null ? { target: row.name } : { target: row.name, step })}
            onToggle={row => go(toggled(state, row.name, !row.open, row.level < level))} onInside={row => go(toggled(state, row.name, !row.open, row.level < level))} />)}
    </section>
  );
}

/** Targets that cannot be compared are not hidden. */
function OnlyOne({ run, names }: { run: Run; names: string[] }) {
  if (!names.length) return null;
  return (
    <details>
      <summary>{many(names.length, "target")} only in <bdi>{run.title}</bdi></summary>
      <ul class="only">{names.slice(0, LISTED).map(name => <li key={name}><code>{name}</code></li>)}{names.length > LISTED && <li>… and {count(names.length - LISTED)} more</li>}</ul>
    </details>
  );
}
