import { useCallback, useMemo, useRef } from "preact/hooks";
import type { Run, Series } from "../data/source";
import { viridis } from "../model/colour";
import { Cover } from "../model/cover";
import { cellText, count, many } from "../model/numbers";
import { flatRows, levelAtFirst, listRows, type Row, rowNamed } from "../model/rows";
import { readSelector } from "../model/selector";
import { findSeries, firstSeries, seriesKey, seriesTitle } from "../model/series";
import { toggled } from "../model/state";
import { whole, zoomed } from "../model/steps";
import { nodeAt, pathOf, ROOT, trail } from "../model/tree";
import type { CellRequest, Fetch } from "../model/tiles";
import { Details } from "../parts/details";
import { FlowToolbar } from "../parts/flow_toolbar";
import { HeatMap } from "../parts/map";
import type { MapHandle } from "../parts/map_export";
import { useRowHeight } from "../parts/row_height";
import { useStride } from "../parts/stride";
import { useTree } from "../parts/tree_of";
import { Loading } from "../parts/trouble";
import { useView } from "../parts/view";
import { useWindow } from "../parts/window";

/** Layers in model order by steps, with the details of the selected row beside it. */
export function Flow({ run }: { run: Run }) {
  const { state } = useView();
  const series = findSeries(run, state.series) ?? firstSeries(run);
  if (!series) return <div class="empty"><h1>Nothing to show</h1><p>This run has no recorded numbers.</p></div>;
  return <FlowOf run={run} series={series} />;
}

function FlowOf({ run, series }: { run: Run; series: Series }) {
  const { state, go, source } = useView();
  const tree = useTree(run), stride = useStride(run, series), rowHeight = useRowHeight();
  const handle = useRef<MapHandle | null>(null);
  const key = seriesKey(series);
  const cover = useMemo(() => new Cover(run.targets.length, series.ranges), [run.targets, key, series.ranges.join()]);
  const [shown, move] = useWindow(state.steps, run.first, run.last, useCallback(steps => go({ steps }), [go]));

  const found = useMemo(() => {
    const names = new Set(run.targets), test = readSelector(state.search, run.types, name => names.has(name));
    return test && cover.list().filter(target => test(run.targets[target]!));
  }, [state.search, run.targets, run.types, cover]);
  const asked = state.inside ? nodeAt(tree, state.inside) : ROOT, inside = asked < 0 ? ROOT : asked;
  const level = useMemo(() => levelAtFirst(tree, cover, inside), [tree, cover, inside]);
  const opened = state.open.join("\n"), closed = state.shut.join("\n");
  const rows = useMemo(() => {
    if (found) return flatRows(tree, found);
    const open = new Set(state.open), shut = new Set(state.shut);
    return listRows(tree, cover, inside, (node, at) => {
      const path = pathOf(tree, node);
      return open.has(path) || (at < level && !shut.has(path));
    });
  }, [tree, cover, inside, level, opened, closed, found]);

  const fetch = useCallback<Fetch>((request: CellRequest, signal) => source.matrix({
    run: run.id, hook: series.hook, name: series.name, of: state.of, first: request.first, each: request.each,
    columns: request.columns, rows: request.rows.map(row => row.ranges[0]!),
  }, signal), [source, run.id, key, state.of]);

  const selected = useMemo(() => state.target === null ? null : rowNamed(tree, cover, state.target), [tree, cover, state.target]);
  const onToggle = (row: Row) => go(toggled(state, row.name, !row.open, row.level < level));
  const onInside = (row: Row) => go({ inside: row.name, open: [], shut: [] });
  const middle = (shown.from + shown.to) / 2;
  const held = source.stepsPerValue(run.id, series.hook, series.name);
  const none = rows.length === 0 ? state.search ? "No target of this series matches." : "This series has no targets." : null;

  return (
    <div class="flow">
      <div class="flow-map">
        <FlowToolbar run={run} series={series} handle={handle} matches={found ? found.length : null} total={cover.total}
          zoom={factor => move(zoomed(shown, middle, factor))} all={() => move(whole(run.first, run.last))} />
        {!found && inside !== ROOT && (
          <nav class="crumbs" aria-label="Position in the model">
            <button type="button" class="link" onClick={() => go({ inside: null })}>all</button>
            {trail(tree, inside).map(node => (
              <span key={node}><span aria-hidden="true"> › </span>
                {node === inside ? <b aria-current="true">{pathOf(tree, node).slice(tree.length[tree.parent[node]!]!).replace(/^\./, "")}</b>
                  : <button type="button" class="link" onClick={() => go({ inside: pathOf(tree, node) })}>{pathOf(tree, node).slice(tree.length[tree.parent[node]!]!).replace(/^\./, "")}</button>}
              </span>))}
          </nav>)}
        {none && (
          <div class="empty"><p role="status">{none}</p>
            {state.search && <p class="quiet">{`The series ${seriesTitle(series)} has ${many(cover.total, "target")}. Examples: `}<code>**.weight</code>, <code>blocks.*</code>, <code>type:Linear</code>, <code>!**.bias</code>.</p>}
            {state.search && <button type="button" onClick={() => go({ search: "" })}>Show all targets</button>}
          </div>)}
        {!none && stride === null && <Loading what="the map" />}
        {!none && stride !== null && (
          <HeatMap key={key} name={seriesTitle(series)} rows={rows} fetch={fetch} first={run.first} last={run.last} stride={stride} revision={run.revision}
            window={shown} onWindow={move} scale={state.scale} range={state.range} palette={viridis} words={cellText} types={run.types}
            isTree={!found} rowHeight={rowHeight} selected={state.target} step={state.step} handle={handle}
            legendTitle={`${state.of === "mean" ? "mean" : "largest"} ${series.name}`}
            note={held > 1 ? `this file holds one value for each ${count(held)} steps` : ""}
            onSelect={(row, step) => go(step === null ? { target: row.id } : { target: row.id, step })}
            onToggle={onToggle} onInside={onInside} />)}
      </div>
      <Details run={run} series={series} row={selected} tree={tree} shown={shown} stride={stride ?? 1}
        onInside={selected?.openable && state.inside !== selected.name ? () => onInside(selected) : null} />
    </div>
  );
}
