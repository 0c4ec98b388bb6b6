"""Run the matrix cells on several ranks, and write the section of docs/matrix.md about them."""

from __future__ import annotations

import json

from tenterhook.plan import POINTS
from tests.support.ranks.launch import torchrun
from tests.support.ranks.regimes import REGIMES

MARKS = {"exact": "exact", "refused": "**refused**", "elementwise": "elementwise"}


def cells(*regimes: str) -> dict[tuple[str, str], str]:
    """Return the outcome of every point in regimes that need the same number of ranks."""
    (ranks,) = {REGIMES[regime].ranks for regime in regimes}
    printed = torchrun("tests.support.ranks.cells", ranks, *regimes, timeout=600)
    found = [json.loads(line.removeprefix("cell ")) for line in printed.splitlines() if line.startswith("cell ")]
    return {(point, regime): outcome for regime, point, outcome in found}


def mark_of(outcome: str) -> str:
    """Return what the table shows for an outcome."""
    return MARKS[outcome.partition(":")[0]]


def row(regime: str, outcomes: dict[tuple[str, str], str]) -> str:
    return f"| {regime} | " + " | ".join(mark_of(outcomes[p, regime]) for p in POINTS) + " |"


def section(outcomes: dict[tuple[str, str], str]) -> str:
    words = [outcome.partition(":")[0] for outcome in outcomes.values()]
    why = {word: sorted({o.partition(": ")[2] for o in outcomes.values() if o.startswith(f"{word}:")})
           for word in ("refused", "elementwise")}  # fmt: skip
    lines = [
        "",
        "## On several ranks",
        "",
        "- *exact*: on every rank, each signal equals the signal in a single process that trains on this rank's batch.",
        "  `grad_final` and `update` equal those in a single process that trains on all batches. Signals are compared",
        "  as whole tensors or as local shards. Weights and `stats` agree within 1e-12 (1e-6 in mixed precision).",
        "- *elementwise*: elementwise actions are exact, and other actions are refused.",
        "",
        f"{len(words)} cells: {words.count('exact')} exact, {words.count('elementwise')} elementwise, "
        f"{words.count('refused')} refused, 0 silent.",
        "",
        "| regime | " + " | ".join(f"`{p}`" for p in POINTS) + " |",
        "|---" * (len(POINTS) + 1) + "|",
        *(row(regime, outcomes) for regime in REGIMES),
        "",
        f"Reasons for *refused* cells: {'; '.join(why['refused'])}.",
        "",
        f"Reasons for *elementwise* cells: {'; '.join(why['elementwise'])}.",
    ]
    return "\n".join(lines) + "\n"
