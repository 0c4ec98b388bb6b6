"""Test that damage to a saved state is detected. `scripts/corrupt` tries all damage; this is a sample."""

from __future__ import annotations

from random import Random

import pytest
import torch

from tenterhook.rig.saved.format import read
from tests.support.keep.corruption import (
    CONTAINERS,
    ROOM,
    bits,
    damages,
    flipped_files,
    size,
    unnoticed_flips,
    verdict,
    verdicts,
    whole_state,
)
from tests.support.keep.specimen import PARTS, same

pytestmark = pytest.mark.programs


@pytest.fixture(scope="module")
def state() -> dict[str, torch.Tensor]:
    return whole_state()


def test_the_state_has_something_of_every_kind(state):
    kinds = {part for key in state for part in key.split("/")[1:3]}
    wanted = {"header", "tensor", "targets", "ledger", "state", "pending", "partial", "fired", "free", "index",
              "pending_free", "pending_index", "generator"}  # fmt: skip
    assert wanted <= kinds
    assert size(state) >= 25_000
    hooks = read(state, ROOM).header.hooks.values()
    assert len(hooks) >= len(PARTS)
    assert any(hook.reasons for hook in hooks)
    assert any(hook.skipped for hook in hooks)


def test_a_flipped_bit_is_noticed(state):
    before = {key: tensor.clone() for key, tensor in state.items()}
    places = Random(1).sample(list(bits(state)), 1000)
    assert list(unnoticed_flips(state, places)) == []
    assert same(state, before)
    assert verdict(state) == "silent"


def test_a_flipped_bit_of_every_entry_is_noticed(state):
    r = Random(2)
    places = [(key, r.randrange(tensor.nbytes), r.randrange(8)) for key, tensor in state.items() for _ in range(5)]
    assert list(unnoticed_flips(state, places)) == []


def test_other_damage_is_noticed(state):
    others = {"another step": whole_state(steps=4), "another run": whole_state(seed=1)}
    found = verdicts(state, Random(3).sample(list(damages(state, others)), 1000))
    assert {word for _, word in found} == {"noticed"}
    assert len(found) == 8


@pytest.mark.parametrize("container", CONTAINERS)
def test_a_flipped_bit_in_a_file_is_noticed(container, state, tmp_path):
    outcomes = flipped_files(container, state, tmp_path, Random(4), 60)
    assert outcomes.keys() <= {"noticed", "refused by the container", "not ours"}
    assert outcomes["noticed"]


@pytest.mark.parametrize("count", [0, 1])
def test_what_lies_wide_is_read_or_refused(count):
    """Check strides of a tensor with at most one element, which PyTorch always calls contiguous."""
    state = whole_state(width=2)
    key = next(key for key, tensor in state.items() if tensor.shape == (1,) and tensor.dtype == torch.float64)
    assert verdict({**state, key: torch.zeros(3, 65, dtype=torch.float64)[:count, 0]}) == "noticed"
    assert verdict({**state, key: state[key].as_strided((1,), (65,))}) == "silent"
