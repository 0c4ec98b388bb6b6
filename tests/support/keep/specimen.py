"""Build small rigs with every kind of state, stopped in the middle of a step."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import tenterhook as th


class Net(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.head = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(th.tap(torch.tanh(self.first(x)), "hidden", within=self))


@th.action("specimen_momentum", at=["grad"], modifies=True)
def momentum(grad: Tensor, ctx: th.Context) -> Tensor:
    """Keep free state of several shapes and dtypes."""
    before = ctx.state.get("momentum")
    ctx.state["momentum"] = grad if before is None else 0.9 * before + grad
    ctx.state["seen"] = torch.tensor(ctx.step)
    return ctx.state["momentum"]


@th.action("specimen_drift", at=["output", "value"], modifies=True, state={"mean": 0.0})
def drift(x: Tensor, ctx: th.Context) -> Tensor:
    """Keep state at a forward point, where new state is pending until the step ends."""
    ctx.state["mean"] = 0.9 * ctx.state["mean"] + 0.1 * x.detach().mean()
    ctx.state["last"] = x.detach().sum(0)
    return x - ctx.state["mean"].to(x.dtype)


@th.action("specimen_fault", at=["grad"])
def fault(grad: Tensor, ctx: th.Context) -> None:
    if ctx.step == 1 and ctx.target.endswith("bias"):
        raise ValueError("not this one")


PARTS = {
    "packed": (th.Hook("z", on="head.weight", at="grad_final", do=th.clip_zscore(warmup=1)),),
    "free": (th.Hook("m", on="head.*", at="grad", do=momentum()),),
    "generator": (th.Hook("n", on="head.bias", at="grad", do=th.noise(std=0.1)),),
    "pending": (th.Hook("d", on="first", at="output", do=drift()),),
    "tensor": (th.Hook("v", on="head", at="output", do=th.steer(by="v"), when=th.When(every=2)),),
    "tap": (th.Hook("t", on="**", at="value", do=drift()), th.Hook("s", on="**", at="value_grad", do=th.stats())),
    "partial": (th.Hook("p", on="head.**", at="grad", do=th.stats()),),
    "muted": (th.Hook("f", on="head.*", at="grad", do=fault()),),
    "trigger": (
        th.Hook("k", on="**.bias", at="grad_final", do=th.spike(z=0.1, warmup=1)),
        th.Hook("c", on="**", at="grad_final", do=th.clip_norm(1.0, over="hook"), when=th.When(after_trip=2)),
    ),
}


class Specimen(NamedTuple):
    """Hold a rig, and keep its model and its optimizer alive."""

    model: Net
    optimizer: torch.optim.Optimizer
    plan: th.Plan
    rig: th.Rig

    def run(self, steps: Iterable[int]) -> None:
        for step in steps:
            self.optimizer.zero_grad()
            self.backward(step)
            self.optimizer.step()

    def backward(self, step: int) -> None:
        wide = self.model.first.in_features
        self.model(torch.randn(3, wide, generator=torch.Generator().manual_seed(step))).square().sum().backward()

    def stop_midway(self) -> None:
        """Run a backward whose gradients are cleared without a step, then the backward of the next step."""
        self.backward(100)
        self.optimizer.zero_grad()
        self.backward(101)


def specimen(*parts: str, width: int = 2, steps: int = 3, seed: int = 0) -> Specimen:
    torch.manual_seed(seed)
    model = Net(width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    plan = th.Plan(hook for part in parts or PARTS for hook in PARTS[part])
    made = Specimen(model, optimizer, plan, attached(model, optimizer, plan))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tenterhook warns when it mutes a hook
        made.run(range(steps))
    made.stop_midway()
    return made


def attached(model: Net, optimizer: torch.optim.Optimizer, plan: th.Plan) -> th.Rig:
    return th.attach(model, plan, optimizer=optimizer, tensors={"v": torch.linspace(0, 1, 2)})


def same(one: Mapping[str, Any], other: Mapping[str, Tensor]) -> bool:
    """Return True if both have the same tensors, bit for bit."""
    if one.keys() != other.keys() or not all(isinstance(value, Tensor) for value in one.values()):
        return False
    pairs = [(one[key].detach(), other[key].detach()) for key in one]
    return all(
        a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes() for a, b in pairs
    )
