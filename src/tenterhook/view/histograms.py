"""Histograms over time: the counts of the targets of a block, added up."""

from __future__ import annotations

from typing import Any

from tenterhook.record import Run
from tenterhook.view.series import Listing, natural

#: blocks that are told apart, besides all targets together
MOST = 64


def histograms(run: Run, listing: Listing) -> list[dict[str, Any]]:
    """Of each hook that counted magnitudes: for each block, the counts of each recorded step."""
    return [_of(run, hook, targets) for hook, targets in sorted(listing.lists.items())]


def _of(run: Run, hook: str, targets: list[str]) -> dict[str, Any]:
    depth = max((d for d in range(1, 8) if len({block(t, d) for t in targets}) <= MOST), default=1)
    found = run.sql(
        "with flat as (select step, array_to_string(string_split(target, '.')[1:?], '.') as block, "
        "generate_subscripts(values, 1) as bin, unnest(values) as count from rows "
        "where hook = ? and values is not null) "
        "select block, step, list(total order by bin) from "
        "(select block, step, bin, sum(count) as total from flat group by all) group by all order by step",
        depth, hook,
    ).fetchall()  # fmt: skip
    blocks: dict[str, dict[str, list[Any]]] = {}
    for name, step, counts in found:
        for key in {name, "all"}:
            one = blocks.setdefault(key, {"steps": [], "counts": []})
            if one["steps"][-1:] == [step]:
                one["counts"][-1] = [a + b for a, b in zip(one["counts"][-1], counts, strict=True)]
            else:
                one["steps"].append(step)
                one["counts"].append(list(counts))
    return {"hook": hook, "blocks": {name: blocks[name] for name in sorted(blocks, key=_all_first)}}


def _all_first(name: str) -> tuple[bool, list[tuple[int, str]]]:
    return name != "all", natural(name)


def block(target: str, depth: int) -> str:
    return ".".join(target.split(".")[:depth])
