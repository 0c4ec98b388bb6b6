"""A step that runs again gives the same values, and the program cannot notice it."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from tenterhook.record.containment import ContainedErrors
from tenterhook.resolve.targets import unwrapped
from tenterhook.rig.rerun.call_log import CallLog
from tenterhook.rig.rerun.second_run import Rerun, run_again, why_not
from tests.support.verdict.families import FAMILIES, Training, build


def state(training: Training) -> list[Tensor]:
    """Return everything that a program can see: weights, buffers, gradients, optimizer state and random generators."""
    model, found = training.model, []
    found += [one.detach().clone() for one in model.parameters()]
    found += [one.clone() for one in model.buffers()]
    found += [one.grad.clone() for one in model.parameters() if one.grad is not None]
    for kept in training.optimizer.state.values():
        found += [one.clone() for one in kept.values() if isinstance(one, Tensor)]
    python = torch.tensor([float(word) for word in random.getstate()[1]], dtype=torch.float64)
    return [*found, torch.get_rng_state(), python, torch.tensor(training.losses)]


def train(name: str, steps: int, *, examined: bool) -> tuple[Training, list[Rerun], list[str]]:
    training = build(name)
    log = CallLog(training.model, ContainedErrors(), lambda: None) if examined else None
    found: list[Rerun] = []
    refused: list[str] = []

    def before(*_: object) -> None:
        if log is None:
            return
        if (why := why_not(training.model, log)) is not None:
            refused.append(why)
        else:
            found.append(run_again(training.model, log))
            check_gradients(training, found[-1])
        log.end_step()

    training.optimizer.register_step_pre_hook(before)
    for step in range(steps):
        training.step(step)
    return training, found, refused


def check_gradients(training: Training, again: Rerun) -> None:
    """Compare the gradients of the second run with those that the optimizer is about to use."""
    if training.scaler is not None:
        return  # the scaler has divided them
    inner = unwrapped(training.model)
    given = {name: one.grad for name, one in inner.named_parameters() if one.grad is not None}
    for name, norm in again.gradients.items():
        if name in given:
            assert norm == float(given[name].float().norm()), name


@pytest.mark.parametrize("name", FAMILIES)
def test_it_gives_the_same_values_and_leaves_no_trace(name: str):
    bare, _, _ = train(name, 5, examined=False)
    watched, found, refused = train(name, 5, examined=True)
    for one, other in zip(state(bare), state(watched), strict=True):
        assert torch.equal(one, other)
    # A model whose root is never called is watched from the second step on.
    assert len(found) + len(refused) == 5
    assert refused in ([], ["the model was not called in this step"])
    assert all(one.reproduced for one in found)
    assert all(one.origin is None for one in found)
