"""A compiled model runs again without the compiler, or the reason is given why it cannot."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tenterhook.record import Verdict
from tenterhook.verdict.examiner import Examiner

pytestmark = pytest.mark.compiled


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())


def verdict(compile: Callable[[nn.Module], Callable[[Tensor], Tensor]]) -> Verdict:
    """Train a compiled model, whose data have a NaN in step 4, and return the verdict."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = compile(model)
    examiner = Examiner(run if isinstance(run, nn.Module) else model, [optimizer])
    for step in range(6):
        x = torch.randn(4, 4)
        x[0, 0] = torch.nan if step == 4 else 0.0
        optimizer.zero_grad()
        run(x).square().mean().backward()
        optimizer.step()
    examiner.close()
    (found,) = examiner.verdicts()
    return found


def test_a_compiled_model_runs_again():
    found = verdict(lambda model: torch.compile(model, backend="aot_eager", fullgraph=True))
    assert found.sentence == (
        "Step 4: the program passed a NaN to the model, in the argument 'x'. Everything after it is a consequence."
    )
    assert "the step ran again and gave the same values" in found.evidence


def test_a_model_that_was_compiled_in_place_does_not():
    def in_place(model: nn.Module) -> nn.Module:
        model.compile(backend="aot_eager", fullgraph=True)
        return model

    assert verdict(in_place).sentence == (
        "Step 4: 4 of 4 gradients are not finite; the origin of the first one is unknown, because the model was "
        "compiled in place, with model.compile()."
    )


def test_a_model_inside_a_compiled_function_does_not():
    def around(model: nn.Module) -> Callable[[Tensor], Tensor]:
        return torch.compile(lambda x: model(x) * 1.0, backend="aot_eager", fullgraph=True)

    assert "because the model was not called in this step" in verdict(around).sentence
