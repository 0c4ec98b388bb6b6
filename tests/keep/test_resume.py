"""Test that resuming is exact at every point, in every container and both ways. `scripts/resume` runs all cases."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import tenterhook as th
from tenterhook.rig.saved.format import OF_A_HOOK, TENSOR
from tests.support.keep.containers import CONTAINERS
from tests.support.keep.resume import ABLATIONS, Trail, prove
from tests.support.keep.training import ACTIONS, Run, parts

pytestmark = pytest.mark.programs


@pytest.fixture(scope="module")
def trail(tmp_path_factory: pytest.TempPathFactory) -> Trail:
    return Trail(tmp_path_factory.mktemp("trail"))


def test_every_point_of_a_run_is_resumed_to_the_bit():
    proof = prove(5, by_turns=True)
    assert proof.points == proof.resumed == sum(len(parts(step)) for step in range(5))
    assert not proof.wrong, "\n".join(proof.wrong)


def test_the_run_has_every_kind_of_state_and_every_hook_acts(trail: Trail):
    keys = {name.removeprefix("hooks/") for bits in trail.bits for name in bits if name.startswith("hooks/")}
    kinds = {key.removeprefix("tenterhook/rank0/").split("/")[0] for key in keys}
    assert kinds == {"header", TENSOR, *OF_A_HOOK}
    ledger = trail.rig.ledger
    assert not [id for id in ledger if not ledger[id].fired]
    observers = {"grads", "outputs", "probs", "spike", "brittle"}
    assert not [id for id in ledger if bool(ledger[id].changed) == (id in observers)]


def test_with_nothing_left_out_nothing_is_seen(trail: Trail):
    assert not [name for _, wrong in trail.follow(0) for name in wrong]


@pytest.mark.parametrize("one", ABLATIONS, ids=lambda one: one.what)
def test_whatever_is_left_out_is_missed(trail: Trail, one):
    assert trail.first_difference(one) is not None


def test_a_state_without_any_one_of_its_entries_is_refused(trail: Trail):
    states = [CONTAINERS["safetensors"](trail.path(point)).hooks() for point in range(len(trail.bits) - 1)]
    state = {k: v for k, v in max(states, key=len).items() if k.startswith("tenterhook/")}
    bare, attached = Run(), Run()
    rig = attached.attach()
    before = attached.bits()
    for missing in state:
        rest = {name: tensor for name, tensor in state.items() if name != missing}
        with pytest.raises(th.StateError, match="is missing"):
            bare.restore(rest)
        with pytest.raises(th.StateError, match="is missing"):
            rig.load_state_dict(rest)
    assert not th.inventory(bare.model, optimizer=bare.optimizer)
    assert attached.bits() == before


# -- partial results in the middle of a step ---------------------------------------------------------------------------


class Small:
    """Train a model with one hook on its only layer, which can be saved and resumed at any point."""

    def __init__(self, do: th.Action) -> None:
        self._build()
        self.rig = th.attach(self.model, th.Hook("h", on="0", at="output", do=do), **self._fittings())

    def _build(self) -> None:
        self.model = nn.Sequential(nn.Linear(3, 2, bias=False))
        nn.init.ones_(self.model[0].weight)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def _fittings(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer, "actions": ACTIONS}

    def break_off(self) -> None:
        state, gradient = self.rig.state_dict(), self.model[0].weight.grad
        self._build()
        self.model[0].weight.grad = gradient
        self.rig = th.restore(self.model, state, **self._fittings())

    def micro(self) -> None:
        self.model(torch.ones(1, 3)).sum().backward()

    def stepped(self) -> list[float]:
        self.optimizer.step()
        return self.model[0].weight.flatten().tolist()


@pytest.fixture(params=[False, True], ids=["whole", "broken off"])
def broken_off(request: pytest.FixtureRequest) -> bool:
    return request.param


def test_a_part_called_without_its_root_is_no_forward_of_the_root():
    drawn = []
    for broken_off in (False, True):
        small = Small(th.noise(std=0.1))
        small.micro()
        if broken_off:
            small.break_off()
        with torch.no_grad():
            small.model[0](torch.ones(1, 3))
            drawn.append(small.model[0](torch.ones(1, 3)).tolist())
            drawn.append(small.model(torch.ones(1, 3)).tolist())
    assert drawn[:2] == drawn[2:]


def test_who_says_what_a_step_is_is_kept(broken_off: bool):
    small = Small(th.noise(std=0.1))
    with small.rig.step():
        small.micro()
        small.stepped()
    if broken_off:
        small.break_off()
    small.stepped()
    assert small.rig.step_count == 1
