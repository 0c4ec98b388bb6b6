"""Show a recorded run in a notebook: what went wrong, the loss, and a map of the norms."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import Any

from tenterhook.drawing import heat_map, sparkline
from tenterhook.record.run_folder.pyramid import block_of
from tenterhook.text_table import TextTable

#: maximum number of steps, blocks and curves that are drawn
STEPS, BLOCKS, SERIES = 60, 40, 30
Fetch = Callable[..., list[tuple[Any, ...]]]


def run_html(title: str, fetch: Fetch, layers: Sequence[str], verdicts: Sequence[Any]) -> str:
    """Return a run as HTML without scripts.

    Args:
        title: The title.
        fetch: Function that runs an SQL query on the rows.
        layers: The modules in the order in which they ran, or nothing.
        verdicts: What went wrong in the training.
    """
    ((first, last, count),) = fetch("select min(step), max(step), count(*) from rows")
    head = f"<h4>{html.escape(title)}</h4><div>steps {first:,} to {last:,}, {count:,} rows</div>"
    wrong = "".join(one._repr_html_() for one in verdicts)
    return head + wrong + _loss(fetch) + _map(fetch, layers) + _series(fetch)


def _loss(fetch: Fetch) -> str:
    found = fetch(
        "select value from (select step, avg(value) as value from rows where hook = 'training' and name = 'loss' "
        "group by step order by step)"
    )
    values = [float(value) for (value,) in found if value is not None]
    if not values:
        return ""
    values = values[:: max(len(values) // 480, 1)]
    return f"<div>loss, last {values[-1]:.4g}<br>{sparkline(values, 'loss by step', width=480, height=48)}</div>"


def _map(fetch: Fetch, layers: Sequence[str]) -> str:
    """Draw the largest norm of each block in some steps."""
    found = fetch(
        "select hook, name from rows where name = 'norm' and hook <> 'training' group by all "
        "order by count(distinct target) desc, hook limit 1"
    )
    if not found:
        return ""
    hook, name = found[0]
    where = "where hook = ? and name = ?"
    all_steps = [step for (step,) in fetch(f"select distinct step from rows {where} order by step", hook, name)]
    steps = all_steps[:: -(-len(all_steps) // STEPS)]
    query = f"select target, step, max(value) from rows {where} and step in ({','.join(map(str, steps))}) group by all"
    cells: dict[str, dict[int, float]] = {}
    for target, step, value in fetch(query, hook, name):
        row = cells.setdefault(block_of(target), {})
        if value is not None:
            row[step] = max(value, row.get(step, value)) if value == value else value
    order = {layer: place for place, layer in enumerate(layers)}
    blocks = sorted(cells, key=lambda block: (_place(block, order), block))
    rows = [(block, [cells[block].get(step) for step in steps]) for block in blocks[:BLOCKS]]
    some = f", {len(steps)} of {len(all_steps):,} steps" * (len(steps) < len(all_steps))
    some += f", {len(rows)} of {len(blocks):,} blocks" * (len(rows) < len(blocks))
    label = f"largest {name} of hook {hook} by block and step"
    return f"<div>{html.escape(label + some)}<br>{heat_map(rows, label)}</div>"


def _place(block: str, order: dict[str, int]) -> int:
    """Return the place of the innermost module that a block belongs to."""
    name = block.partition(":")[0]
    while name and name not in order:
        name = name.rpartition(".")[0]
    return order.get(name, len(order))


def _series(fetch: Fetch) -> str:
    """List what was recorded."""
    found = fetch(
        "select hook, name, count(distinct target), count(distinct step), min(value), max(value) from rows "
        "group by all order by hook, name"
    )
    foot = f"... and {len(found) - SERIES} more" if len(found) > SERIES else ""
    head = ("hook", "number", "targets", "steps", "smallest", "largest")
    return TextTable("recorded numbers", head, found[:SERIES], foot).html()
