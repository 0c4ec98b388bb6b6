"""Record and compare some pairs of the corpus as a user does. `scripts/diff-pairs` does it for all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.diff.pairs import all_pairs, run_pairs

#: they share the first run
FEW = ("mlp-ulp-later", "mlp-scaled-grad", "mlp-again")


@pytest.mark.programs
def test_the_planted_differences_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [pair for pair in all_pairs() if pair["name"] in FEW]
    assert len(pairs) == len(FEW)
    assert run_pairs(pairs, tmp_path) == 0, capsys.readouterr().out


def test_the_corpus_is_as_large_as_we_say() -> None:
    equal = [pair["equal"] for pair in all_pairs()]
    assert (len(equal) - sum(equal), sum(equal)) == (168, 45)
    assert len({pair["name"] for pair in all_pairs()}) == len(equal)
