"""Runs a part of `scripts/compiled`, which trains for 50 steps with inductor."""

from __future__ import annotations

import pytest

from tests.support.compiled.models import compare
from tests.support.earlier_torch import since

#: torch.compile of a block reads the .grad of its inputs
pytestmark = [
    pytest.mark.compiled,
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]


@pytest.mark.parametrize(
    "name, how",
    [pytest.param("gpt2", "by block", marks=since(11, "compiles a block of GPT-2 twice")), ("llama", "whole")],
)
def test_hooks_in_one_graph_are_as_in_eager(name: str, how: str):
    assert "1 graph, 0 breaks" in compare(name, how, steps=7, backend="aot_eager")
