"""Test the numbers of `th.skew` on one process, and the integers that carry them between ranks."""

from __future__ import annotations

import math
import time
from pathlib import Path

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import nn

import tenterhook as th
from tenterhook.record import Batch, Flight
from tenterhook.rig.step.skew import ABSENT, decode, encode

#: numbers that the integers carry exactly
VALUES = st.floats(width=32) | st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan])


@given(st.lists(VALUES, min_size=1, max_size=6), st.integers(0, 2**20 - 7))
def test_the_maxima_are_the_lowest_and_the_highest_value_with_a_rank_that_has_it(values: list[float], first: int):
    ranks = range(first, first + len(values))
    maxima = [max(some) for some in zip(*(encode(value, rank) for value, rank in zip(values, ranks, strict=True)))]
    low, low_rank, high, high_rank = decode(*maxima)
    known = [(value, rank) for value, rank in zip(values, ranks, strict=True) if not math.isnan(value)]
    if not known:
        assert math.isnan(low) and math.isnan(high) and low_rank == high_rank == -1
        return
    least, most = min(value for value, _ in known), max(value for value, _ in known)
    assert (low, high) == (least, most)
    if low == high and len(known) > 1:
        assert low_rank == high_rank == -1
    else:
        assert (low, low_rank) in known and (high, high_rank) in known


@given(st.floats(min_value=1e-300, max_value=1e300), st.sampled_from([1, -1]))
def test_a_number_has_nine_digits(value: float, sign: int):
    low, _, high, _ = decode(*encode(sign * value, 3))
    assert low == high == pytest.approx(sign * value, rel=1e-9)


@given(VALUES, st.integers(0, 2**20 - 1))
def test_each_integer_has_63_bits_and_a_value_is_larger_than_none(value: float, rank: int):
    for number in encode(value, rank):
        assert ABSENT <= number < 2**63
        assert (number == ABSENT) == math.isnan(value)


@pytest.mark.parametrize("at", ["grad", "grad_accumulated"])
def test_the_numbers_are_those_of_all_targets_together(at: str):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    rig = th.attach(model, th.Hook("local", on="**", at=at, do=th.skew()))
    model(torch.randn(5, 4)).square().sum().backward()
    gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
    numbers = rig.values("local")["."]
    assert numbers["norm_min"] == numbers["norm_max"] == pytest.approx(float(gradients.norm()))
    assert numbers["mean_min"] == numbers["mean_max"] == pytest.approx(float(gradients.mean()))
    assert numbers["nonfinite_max"] == 0 and numbers["norm_max_rank"] == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_elements_that_are_not_finite_are_counted(dtype: torch.dtype, bad: float):
    model = nn.Identity()
    rig = th.attach(model, th.Hook("out", on=".", at="output", do=th.skew()))
    with rig.step():
        model(torch.tensor([1.0, bad, bad, 2.0], dtype=dtype))
    assert rig.values("out")["."]["nonfinite_max"] == 2


def test_the_calls_of_a_step_are_added():
    model = nn.Identity()
    rig = th.attach(model, th.Hook("out", on=".", at="output", do=th.skew()))
    with rig.step():
        model(torch.tensor([3.0]))
        model(torch.tensor([4.0]))
    numbers = rig.values("out")["."]
    assert (numbers["norm_max"], numbers["mean_max"]) == (5.0, 3.5)


def test_an_empty_tensor_has_no_norm_and_no_mean():
    model = nn.Identity()
    rig = th.attach(model, th.Hook("out", on=".", at="output", do=th.skew()))
    with rig.step():
        model(torch.zeros(0, 3))
    numbers = rig.values("out")["."]
    assert math.isnan(numbers["norm_max"]) and math.isnan(numbers["mean_min"]) and numbers["nonfinite_max"] == 0


@pytest.mark.parametrize("optimizer", [True, False])
def test_the_time_between_two_steps_is_recorded_if_asked(optimizer: bool):
    model = nn.Linear(1, 1)
    plan = [th.Hook(id, on="**", at="grad", do=th.skew(time=id == "timed")) for id in ("timed", "other")]
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, plan, optimizer=sgd if optimizer else None)
    for _ in range(2):
        time.sleep(0.02)
        model(torch.ones(1, 1)).sum().backward()
        time.sleep(0.5)
        sgd.step()
    assert 0.02 <= rig.values("timed")["."]["seconds_max"] - (0 if optimizer else 0.5) < 0.3
    assert "seconds_max" not in rig.values("other")["."]


def test_the_rows_are_recorded_under_their_step(tmp_path: Path):
    model = nn.Linear(1, 1, bias=False)
    flight = Flight(tmp_path / "flight")
    plan = [
        th.Hook("local", on="**", at="grad", do=th.skew(), when=th.When(every=2)),
        th.Hook("all", on="**", at="grad", do=th.stats()),
    ]
    with th.attach(model, plan, sinks=[th.Store(tmp_path / "run"), flight]):
        for step in range(5):
            model(torch.full((1, 1), float(step))).sum().backward()
    rows = th.Run(tmp_path / "run").sql(
        "select step, value from rows where hook = 'local' and name = 'norm_max' order by step"
    )
    assert rows.fetchall() == [(0, 0.0), (2, 2.0), (4, 4.0)]
    kept: list[Batch] = list(flight._batches)
    assert [one.step for one in kept] == [0, 1, 2, 3, 4], "a flight recorder counts batches as steps"
    assert [set(one.tables) for one in kept] == [{"local", "all"}, {"all"}] * 2 + [{"local", "all"}]


@pytest.mark.parametrize("at", ["grad_final", "update"])
def test_what_is_equal_on_all_ranks_is_refused(at: str):
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(th.RefusedError, match="the action 'skew' is not available at this point"):
        th.attach(model, th.Hook("local", on="**", at=at, do=th.skew()), optimizer=optimizer)
