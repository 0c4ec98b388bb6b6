"""Each built-in modifier, at each point it allows, equals the same hook written by hand, bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import tenterhook as th
from tenterhook.actions import BUILTIN
from tenterhook.rig.runtime.hook_state import derive_seed
from tests.support.rig.by_hand import TARGETS, Hand
from tests.support.rig.matrix import _bits, _same
from tests.support.rig.regimes import Net, Regime

VECTOR = torch.tensor([0.5, -1.0, 2.0, 0.25])
FORWARD = ("input", "output", "value")


def clip_norm(x: Tensor) -> Tensor:
    return x * (0.1 / (torch.linalg.vector_norm(x) + 1e-6)).clamp(max=1.0)


def clip_adaptive(model: Net) -> Callable[[Tensor], Tensor]:
    def change(g: Tensor) -> Tensor:
        limit = model.mid.weight.detach().norm(dim=1, keepdim=True).clamp(min=1e-3) * 0.01
        norm = g.norm(dim=1, keepdim=True)
        return torch.where(norm > limit, g * (limit / norm.clamp(min=1e-6)), g)

    return change


class Zscore:
    def __init__(self) -> None:
        self.mean, self.var, self.seen = (torch.zeros((), dtype=torch.float64) for _ in range(3))

    def __call__(self, x: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(x).double()
        limit = self.mean + 1.0 * self.var.sqrt() if self.seen >= 1 else torch.tensor(torch.inf, dtype=torch.float64)
        clipped = torch.minimum(norm, limit)
        keep = (self.seen / (self.seen + 1)).clamp(max=0.9)
        step = clipped - self.mean
        self.var = keep * (self.var + (1 - keep) * step * step)
        self.mean = keep * self.mean + (1 - keep) * clipped
        self.seen = self.seen + 1
        return x * (clipped / (norm + 1e-6)).to(x.dtype) if clipped < norm else x


def noise(point: str) -> Callable[[Tensor], Tensor]:
    running = torch.Generator().manual_seed(derive_seed("cell", 7))
    step = -1

    def change(x: Tensor) -> Tensor:
        nonlocal step
        step += 1
        once = torch.Generator().manual_seed(derive_seed("cell", TARGETS[point], 7, step, True, 1))
        return x + torch.randn(x.shape, generator=once if point in FORWARD else running) * 0.3

    return change


#: for each name, the action and a function that makes the hand-written version for a model and a point
PAIRS: dict[str, tuple[th.Action, Callable[[Net, str], Callable[[Tensor], Tensor]]]] = {
    "scale": (th.scale(0.3), lambda m, p: lambda x: x * 0.3),
    "clip_value": (th.clip_value(0.02), lambda m, p: lambda x: x.clamp(-0.02, 0.02)),
    "clip_norm": (th.clip_norm(0.1), lambda m, p: clip_norm),
    "clip_adaptive": (th.clip_adaptive(), lambda m, p: clip_adaptive(m)),
    "clip_zscore": (th.clip_zscore(z=1.0, alpha=0.9, warmup=1), lambda m, p: Zscore()),
    "mask": (th.mask("v"), lambda m, p: lambda x: x * VECTOR),
    "reverse": (th.reverse(0.5), lambda m, p: lambda x: x * -0.5),
    "noise": (th.noise(0.3, seed=7), lambda m, p: noise(p)),
    "nan_to_num": (th.nan_to_num(nan=1.0), lambda m, p: lambda x: torch.nan_to_num(x, nan=1.0)),
    "steer": (th.steer("v", scale=0.1), lambda m, p: lambda x: x + 0.1 * VECTOR),
}

CASES = [(name, point) for name in PAIRS for point in BUILTIN.get(name).at]


def test_every_modifier_has_a_hand_written_twin():
    assert set(PAIRS) == {name for name in BUILTIN.names() if BUILTIN.get(name).modifies}


@pytest.mark.parametrize(("name", "point"), CASES)
def test_parity(name: str, point: str):
    action, by_hand = PAIRS[name]
    regime = Regime()
    model = regime.model()
    hand = Hand(point, by_hand(model, point))
    optimizers = regime.optimizers(model)
    regime.train(model, optimizers, hand)
    expected = _bits(model, optimizers)

    regime = Regime()
    model = regime.model()
    optimizers = regime.optimizers(model)
    rig = th.attach(model, [th.Hook("cell", on=TARGETS[point], at=point, do=action)], optimizer=optimizers,
                    tensors={"v": VECTOR})  # fmt: skip
    regime.train(model, optimizers, Hand(None))
    _same(expected, _bits(model, optimizers))
    assert rig.ledger["cell"].fired == len(hand.seen) == rig.ledger["cell"].changed


def test_a_global_clip_equals_pytorchs_own_over_many_tensors():
    torch.manual_seed(0)
    ours = nn.Sequential(*[nn.Linear(13, 13) for _ in range(24)])
    theirs = copy.deepcopy(ours)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (ours, theirs)]
    th.attach(ours, th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(0.05, over="hook")),
              optimizer=optimizers[0])  # fmt: skip
    for step in range(5):
        scales = torch.rand(48, generator=torch.Generator().manual_seed(step)).tolist()
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            for p, scale in zip(model.parameters(), scales, strict=True):
                p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(step)) * scale
            if model is theirs:
                torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.05)
            optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
