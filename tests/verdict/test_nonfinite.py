"""The first value that is not finite is traced to the module, the step and the operation that made it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tenterhook.record import Verdict
from tenterhook.resolve.targets import unwrapped
from tenterhook.verdict.examiner import Examiner
from tests.support.verdict.families import FAMILIES, Training, build
from tests.support.verdict.planted import FAULTS, Planted


def modules_with_gradients(training: Training) -> list[str]:
    """Return the modules whose outputs receive a gradient."""
    found: list[str] = []

    def note(name: str, output: object) -> None:
        first = output[0] if isinstance(output, tuple) and output else output
        if isinstance(first, torch.Tensor) and first.requires_grad:
            first.register_hook(lambda gradient: found.append(name))

    inner = unwrapped(training.model)
    handles = [m.register_forward_hook(lambda _, args, y, n=n: note(n, y)) for n, m in inner.named_modules()]
    training.step(0)
    for handle in handles:
        handle.remove()
    return sorted(set(found))


def verdicts_of(training: Training, planted: Planted, at: int) -> list[Verdict]:
    examiner = Examiner(training.model, [training.optimizer], first=1)
    for step in range(1, at + 1):
        planted.active = step == at
        training.step(step)
    examiner.close()
    return examiner.verdicts()


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_module_and_the_step_are_named(name: str, fault: str):
    chance = random.Random(f"{name} {fault}")
    training, at = build(name), chance.randrange(3, 6)
    target = chance.choice(modules_with_gradients(training))
    found = verdicts_of(training, Planted(unwrapped(training.model).get_submodule(target), fault), at)
    assert [(one.code, one.target, one.step) for one in found] == [("TH801", target, at)]
    side = "produced the first" if fault.startswith("forward") else "the backward pass of"
    assert side in found[0].sentence
    assert "the step ran again and gave the same values" in found[0].evidence


def test_the_sentence():
    torch.manual_seed(0)
    training = build("gpt")
    planted = Planted(training.model.get_submodule("h.2.mlp"), "forward-nan")
    (found,) = verdicts_of(training, planted, 4)
    assert found.sentence == (
        "Step 4: 'h.2.mlp' produced the first NaN in the forward pass, in the operation log; its input was finite. "
        "Everything after it is a consequence."
    )
    assert str(found).splitlines()[-1] == (
        "  remedy:   check the operation log in 'h.2.mlp': a logarithm or root of a negative number, or a division of "
        "zero by zero, is NaN"
    )


def examined(model: nn.Module, loss: object, steps: int = 3) -> list[Verdict]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    examiner = Examiner(model, [optimizer])
    for step in range(steps):
        optimizer.zero_grad()
        loss(step).backward()  # type: ignore[operator]
        optimizer.step()
    examiner.close()
    return examiner.verdicts()


def test_a_loss_is_named_if_all_outputs_are_finite():
    model = nn.Linear(2, 1)
    (found,) = examined(
        model, lambda step: (model(torch.ones(4, 2)).mean() * 0).sqrt() if step == 2 else model(torch.ones(4, 2)).mean()
    )
    assert (found.code, found.step) == ("TH803", 2)


def test_data_are_named():
    model = nn.Linear(2, 1)
    (found,) = examined(model, lambda step: model(torch.full((4, 2), torch.nan if step == 1 else 1.0)).mean())
    assert (found.code, found.step, found.target) == ("TH802", 1, "input")


def test_an_optimizer_is_named_that_writes_a_bad_weight():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    examiner = Examiner(model, [optimizer])
    for step in range(4):
        optimizer.zero_grad()
        model(torch.ones(4, 2)).mean().backward()
        optimizer.step()
        if step == 2:
            model[0].weight.data[0, 0] = torch.nan
    examiner.close()
    (found,) = examiner.verdicts()
    assert (found.code, found.step, found.target) == ("TH804", 2, "0.weight")


def test_an_attention_mask_is_not_a_cause():
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, rows: int) -> torch.Tensor:
            scores = self.project(x).masked_fill(torch.arange(4) < rows, -torch.inf)
            return scores.softmax(-1)

    model = Masked()
    # With a mask of all columns, the softmax is the first operation with a NaN, not the mask.
    (found,) = examined(model, lambda step: model(torch.randn(3, 4), 4 if step == 2 else 2).square().sum())
    assert "in the operation _softmax" in found.sentence
    assert found.step == 2


def test_a_step_that_cannot_run_again_is_reported_as_such():
    class Shift(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.by = nn.Parameter(torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.by

    model = Shift()
    x = torch.ones(4, 2)

    def loss(step: int) -> torch.Tensor:
        made = model(x).mean()
        if step == 2:
            x.add_(1)
            return made * torch.nan
        return made

    (found,) = examined(model, loss)
    assert found.sentence == (
        "Step 2: 1 of 1 gradients are not finite; the origin of the first one is unknown, because the program "
        "changed an input of the model in place after the call."
    )


def divides(x: Tensor) -> Tensor:
    return x / 0.0


def distance(x: Tensor) -> Tensor:
    """Return the same values, with a backward pass that is not finite: the derivative of a square root at zero."""
    return x + (x - x.detach()).square().sum(-1, keepdim=True).sqrt()


class CountsCalls(nn.Module):
    """A module that counts its calls, as an annealed temperature does, and breaks in one of them."""

    def __init__(self, bad: int, fault: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.calls = 0
        self.seen = {"calls": 0}
        self.bad = bad
        self.fault = fault

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen["calls"] += 1
        return self.fault(x) if self.calls == self.bad else x


@pytest.mark.parametrize("fault", (divides, distance))
def test_a_module_that_counts_its_calls_is_named_and_counts_on(fault: Callable[[Tensor], Tensor]):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), CountsCalls(21, fault), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    examiner = Examiner(model, [optimizer])
    for step in range(20 + 1):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        assert model[1].calls == model[1].seen["calls"] == step + 1
    examiner.close()
    found = examiner.verdicts()[0]
    assert (found.code, found.step, found.target) == ("TH801", 20, "1")
    assert "the step ran again and gave the same values" in found.evidence


def test_a_bad_gradient_that_does_not_come_back_is_not_harmless():
    training = build("mlp")
    weight = next(training.model.parameters())
    weight.register_hook(lambda grad: grad * float("inf") if training.losses[2:] else grad)  # not in the second run
    examiner = Examiner(training.model, [training.optimizer])
    for step in range(5):
        training.step(step)
    examiner.close()
    found, *_ = examiner.verdicts()
    assert found.code == "TH801"
    assert found.sentence.endswith("because the step gave other values when it ran again.")
