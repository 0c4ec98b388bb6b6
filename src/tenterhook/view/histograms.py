"""Sum the histograms of all targets in each block, for each recorded step."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from tenterhook.record import Run
from tenterhook.view.series import Contents, natural_key

#: maximum number of blocks shown; the sum over all targets is also shown
MAX_BLOCKS = 64


#: for each step, the counts summed over the targets in a block; a block's name is a prefix of its targets' names
_QUERY = """
with flat as (
  select step, array_to_string(string_split(target, '.')[1:?], '.') as block,
    generate_subscripts(values, 1) as bin, unnest(values) as count
  from rows where hook = ? and values is not null
)
select block, step, list(total order by bin)
from (
  select block, step, bin, least(coalesce(sum(count) filter (isfinite(count)), 0), 1e300) as total
  from flat group by all
)
group by all order by step
"""


def histograms(run: Run, contents: Contents) -> list[dict[str, Any]]:
    """Return the histogram counts by block and step for each hook that recorded histograms."""
    return [_by_block(run, hook, targets) for hook, targets in sorted(contents.lists.items())]


def _by_block(run: Run, hook: str, targets: list[str]) -> dict[str, Any]:
    depth = max((d for d in range(1, 8) if len({_block(t, d) for t in targets}) <= MAX_BLOCKS), default=1)
    found = run.fetch(_QUERY, depth, hook)
    blocks: dict[str, dict[str, list[Any]]] = {}
    for name, step, counts in found:
        for key in {name, "all"}:
            one = blocks.setdefault(key, {"steps": [], "counts": []})
            if one["steps"][-1:] == [step]:
                one["counts"][-1] = [a + b for a, b in zip_longest(one["counts"][-1], counts, fillvalue=0)]
            else:
                one["steps"].append(step)
                one["counts"].append(list(counts))
    return {"hook": hook, "blocks": {name: blocks[name] for name in sorted(blocks, key=_all_first)}}


def _all_first(name: str) -> tuple[bool, tuple[str, str]]:
    return name != "all", natural_key(name)


def _block(target: str, depth: int) -> str:
    return ".".join(target.split(".")[:depth])
