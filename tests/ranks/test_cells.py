"""A slice of the matrix on several ranks; `scripts/matrix` runs all of it."""

from __future__ import annotations

import json

import pytest

from tests.ranks.launch import torchrun


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("regimes", "ranks", "counts"),
    [
        (("DDP, bucket views, no_sync", "FSDP2, per block", "TP"), 2, (16, 14, 10)),
        (("FSDP2 x TP",), 4, (8,)),
    ],
)
def test_every_cell_is_exact_or_refused(regimes: tuple[str, ...], ranks: int, counts: tuple[int, ...]):
    printed = torchrun("tests.ranks.cells", ranks, *regimes)
    cells = [json.loads(line.removeprefix("cell ")) for line in printed.splitlines() if line.startswith("cell ")]
    for regime, exact in zip(regimes, counts, strict=True):
        outcomes = [outcome for name, _, outcome in cells if name == regime]
        assert len(outcomes) == 16 and outcomes.count("exact") == exact
        assert all(outcome.partition(":")[0] in ("exact", "refused", "elementwise") for outcome in outcomes)
