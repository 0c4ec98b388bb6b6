import { count } from "../model/numbers";
import type { Row } from "../model/rows";
import { visible } from "../model/visible";

export interface RowLabelsProps {
  rows: Row[]; from: number; to: number; offset: number; rowHeight: number; selected: number; active: number;
  types: Record<string, string>; isTree: boolean; id: string;
  onPick: (row: number) => void; onToggle: (row: Row) => void; onInside: (row: Row) => void;
  onKey: (event: KeyboardEvent) => void;
}

/** The labels of the rows on screen. The list has the focus and names its active row, since rows come and go. */
export function RowLabels(props: RowLabelsProps) {
  const { rows, from, to, offset, rowHeight, selected, active, types, isTree, id } = props;
  const shown = [];
  for (let place = from; place < to; place++) {
    const row = rows[place]!;
    const type = !row.itself && types[row.name];
    shown.push(
      <div key={row.key} id={`${id}-${place}`} role={isTree ? "treeitem" : "option"} aria-level={isTree ? row.level : undefined}
        aria-expanded={row.openable ? row.open : undefined} aria-selected={place === selected} aria-setsize={rows.length}
        aria-posinset={place + 1}
        class={`row${place === selected ? " selected" : ""}${place === active ? " active" : ""}`}
        title={`${row.name}${type ? ` (${type})` : ""}${row.covered > 1 ? ` · ${count(row.covered)} targets` : ""}`}
        style={{ height: `${rowHeight}px`, top: `${(place - from) * rowHeight - offset}px`, paddingLeft: `calc(4px + ${Math.min(row.level - 1, 10)} * var(--indent))` }}
        onClick={() => props.onPick(place)} onDblClick={() => row.openable && props.onInside(row)}>
        {isTree && <span class={row.openable ? "fold can" : "fold"} aria-hidden="true" onClick={event => {
          if (!row.openable) return;
          event.stopPropagation();
          props.onToggle(row);
        }} onDblClick={event => event.stopPropagation()}>{row.openable ? row.open ? "▾" : "▸" : ""}</span>}
        <Label text={row.label} whole={!isTree} />
        {row.covered > 1 && <span class="amount">{count(row.covered)}<span class="sr"> targets</span></span>}
      </div>);
  }
  return (
    <div class="labels" role={isTree ? "tree" : "listbox"} aria-label={isTree ? "Modules and parameters" : "Matching targets"} tabIndex={0}
      aria-activedescendant={active >= from && active < to ? `${id}-${active}` : undefined} onKeyDown={props.onKey}>
      {shown}
    </div>
  );
}

/** A long name in a list loses its start, because its end tells it from its neighbours. */
export function Label({ text, whole }: { text: string; whole: boolean }) {
  return <span class={whole ? "name tail" : "name"}><bdi>{visible(text) || "(empty name)"}</bdi></span>;
}
