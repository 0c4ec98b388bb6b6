"""Build a run whose plan has every kind of state, and compare two runs."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tenterhook as th

HEADER = "tenterhook/rank0/header"
ACTIONS = th.Registry()


@th.action("momentum", registry=ACTIONS, at=["grad"], modifies=True)
def momentum(g: Tensor, ctx: th.Context, *, beta: float = 0.9) -> Tensor:
    """Keep free state that has the shape of the gradient."""
    before = ctx.state.get("velocity")
    ctx.state["velocity"] = g if before is None else beta * before + g
    return ctx.state["velocity"]


@th.action("drift", registry=ACTIONS, at=["output"], modifies=True, state={"calls": 0.0})
def drift(x: Tensor, ctx: th.Context, *, by: float = 0.01) -> Tensor:
    """Keep declared and free state at a forward point, where new state is pending until the step ends."""
    ctx.state["calls"] = ctx.state["calls"] + 1
    ctx.state["last"] = x[0]
    return x + by * ctx.state["calls"].float()


@th.action("count", registry=ACTIONS, state={"n": 0.0})
def count(x: Tensor, ctx: th.Context) -> None:
    ctx.state["n"] = ctx.state["n"] + 1


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + th.tap(torch.tanh(self.lin(x)), "act", within=self)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(3, 4)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


PLAN = th.Plan(
    [
        th.Hook("zscore", on="**", at="grad_final", do=th.clip_zscore(z=0.5, warmup=2)),
        th.Hook("noise", on="**.weight", at="grad", do=th.noise(0.01)),
        th.Hook("drift", on="blocks.*", at="output", do=drift),
        th.Hook("momentum", on="head.*", at="grad", do=momentum),
        th.Hook("steer", on="head", at="output", do=th.steer(by="v")),
        th.Hook("taps", on="blocks.*:act", at="value_grad", do=th.clip_zscore(z=0.5, warmup=1)),
        th.Hook("spike", on="head.weight", at="grad_final", do=th.spike(z=0.5, warmup=2)),
        th.Hook("after", on="embed.*", at="grad_final", do=th.scale(0.5), when=th.When(after_trip=1)),
        th.Hook("stats", on="embed.weight", at="grad", do=th.stats(), when=th.When(every=3, start=1)),
    ]
)
TENSORS = {"v": torch.tensor([0.5, -0.25])}


@dataclass
class Run:
    """Train a model with a rig. Step `i` has the same data in every run."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    rig: th.Rig

    def train(self, steps: Iterable[int]) -> Run:
        for step in steps:
            self.optimizer.zero_grad()
            self.backward(step, 0)
            self.backward(step, 1)
            self.optimizer.step()
        return self

    def backward(self, step: int, micro: int) -> None:
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(100 * step + micro))
        self.model(x).square().mean().backward()

    def state(self) -> dict[str, Tensor]:
        """Return the whole state of the run: weights, gradients, and the states of the optimizer and the rig."""
        parts = {f"model/{name}": tensor for name, tensor in self.model.state_dict().items()}
        parts |= {f"grad/{name}": p.grad for name, p in self.model.named_parameters() if p.grad is not None}
        for index, entries in self.optimizer.state_dict()["state"].items():
            parts |= {f"optimizer/{index}/{name}": torch.as_tensor(value) for name, value in entries.items()}
        return {name: tensor.clone() for name, tensor in parts.items()} | self.rig.state_dict()


def build(make: Callable[[], nn.Module] = Net) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = make()
    return model, torch.optim.AdamW(model.parameters(), lr=0.05)


def attached(plan: th.Plan | th.Hook | Iterable[th.Hook] = PLAN, make: Callable[[], nn.Module] = Net) -> Run:
    model, optimizer = build(make)
    rig = th.attach(model, plan, optimizer=optimizer, actions=ACTIONS, tensors=TENSORS)
    return Run(model, optimizer, rig)


def fired(fn: Callable[..., None]) -> Run:
    """Return a run whose rig has one observer, which has fired at two targets."""
    actions, model = th.Registry(), nn.Linear(2, 2)
    own = th.action("own", registry=actions, at=["grad"])(fn)
    rig = th.attach(model, th.Hook("h", on="**", at="grad", do=own), actions=actions)
    model(torch.ones(1, 2)).sum().backward()
    return Run(model, torch.optim.SGD(model.parameters()), rig)


def fresh(run: Run, make: Callable[[], nn.Module] = Net) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a new model and optimizer with the run's weights, gradients and optimizer state, as after a restart."""
    model, optimizer = build(make)
    saved = through_torch({"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict()})
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    for mine, theirs in zip(model.parameters(), run.model.parameters(), strict=True):
        mine.grad = None if theirs.grad is None else theirs.grad.clone()
    return model, optimizer


def through_torch(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> None:
    """Assert that two states are equal bit for bit."""
    assert one.keys() == other.keys()
    different = [key for key in one if not identical(one[key], other[key])]
    assert not different


def identical(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and raw(one) == raw(other)


def raw(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def copied(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key: tensor.clone() for key, tensor in state.items()}


def header(state: Mapping[str, Tensor]) -> dict[str, Any]:
    return json.loads(raw(state[HEADER]))["state"]


def sealed(said: dict[str, Any], entries: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the state dict of a header and its entries, written as the format requires but without the package."""
    said["entries"] = {
        key.removeprefix("tenterhook/rank0/"): {
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
            "digest": hashlib.blake2b(raw(tensor), digest_size=16).hexdigest(),
        }
        for key, tensor in entries.items()
    }
    state = canonical(said)
    digest = hashlib.blake2b(state.encode(), digest_size=16).hexdigest()
    text = canonical({"tenterhook": 1, "digest": digest, "state": said})
    return {HEADER: torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8), **entries}


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def resealed(state: Mapping[str, Tensor], change: Callable[[dict[str, Any], dict[str, Tensor]], object]) -> Any:
    """Return a state whose header and entries `change` has edited, with valid digests."""
    said, entries = header(state), copied({key: t for key, t in state.items() if key != HEADER})
    change(said, entries)
    return sealed(said, entries)


def counters(rig: th.Rig) -> dict[tuple[str, str], tuple[Any, ...]]:
    return {
        (id, site.name): (
            site.due, site.fired, site.changed, site.failed, site.rebound, site.first, site.last, site.skipped or {},
            site.dormant,
        )
        for id, account in rig.ledger.items() for site in account.values()
    }  # fmt: skip


@pytest.fixture
def run() -> Run:
    """Return a run after six steps."""
    return attached().train(range(6))


@pytest.fixture
def midway(run: Run) -> Run:
    """Return a run between the two backwards of step 7, in which as many hooks as possible are due."""
    assert run.rig.step_count == 6
    run.train([6])
    run.optimizer.zero_grad()
    run.backward(7, 0)
    return run
