"""Let one of two ranks do something alone in a training, and say for each rank whether the result is exact or typed.

python -m torch.distributed.run ... -m tests.support.ranks.transitions [CELL...]

A cell is a regime, a transition, a point and a kind of action, such as "DDP skip grad_final modify". It is silent if no
rank raises an error of tenterhook, and yet the weights differ from those of the same training by hand.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import tenterhook as th
from tenterhook.ranks import group
from tests.support.ranks.launch import leave

group.PATIENCE = 2.0
#: seconds after the waiting time in which every rank must have raised an error
LATE = 5.0
STEPS, WHEN = 4, 2

Trained = tuple[Any, torch.optim.Optimizer]


def build() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def with_optimizer(model: Any) -> Trained:
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def ddp() -> Trained:
    return with_optimizer(nn.parallel.DistributedDataParallel(build()))


def fsdp2() -> Trained:
    from torch.distributed.fsdp import fully_shard

    return with_optimizer(fully_shard(build()))


REGIMES: dict[str, Callable[[], Trained]] = {"DDP": ddp, "FSDP2": fsdp2}


def batch(step: int, rank: int) -> torch.Tensor:
    return torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(10 * step + rank))


def backward(model: Any, optimizer: torch.optim.Optimizer, step: int) -> None:
    optimizer.zero_grad()
    model(batch(step, dist.get_rank())).square().mean().backward()


# -- what rank 1 does alone ------------------------------------------------------------------------------------------


def nothing(rig: th.Rig, saved: Any) -> None:
    pass


def detach(rig: th.Rig, saved: Any) -> None:
    rig.detach()


def mute(rig: th.Rig, saved: Any) -> None:
    rig.mute("cell")


def unplanned(rig: th.Rig, saved: Any) -> None:
    rig.remove("cell")


def reload(rig: th.Rig, saved: Any) -> None:
    rig.load_state_dict(saved)


TRANSITIONS: dict[str, Callable[[th.Rig, Any], None]] = {
    "nothing": nothing,
    "skip": nothing,
    "detach": detach,
    "mute": mute,
    "remove": unplanned,
    "reload": reload,
}
POINTS = ("output", "grad", "grad_final", "update")
TARGETS = {"output": "0", "grad": "0.weight", "grad_final": "**", "update": "**"}
CELLS = [
    f"{regime} {transition} {point} {kind}"
    for regime, transition, point, kind in itertools.product(REGIMES, TRANSITIONS, POINTS, ("observe", "modify"))
    if (point, kind) != ("update", "modify")
]


def by_hand(regime: str, transition: str, point: str, kind: str) -> list[torch.Tensor]:
    """Train with plain PyTorch, as if the hooks acted in every step. Return the weights."""
    model, optimizer = REGIMES[regime]()
    factor = 0.5 if kind == "modify" else 1.0
    inner = getattr(model, "module", model)
    if point == "output":
        inner[0].register_forward_hook(lambda module, args, output: output * factor)
    for step in range(STEPS):
        backward(model, optimizer, step)
        for name, one in inner.named_parameters():
            if point == "grad_final" or (point == "grad" and name == "0.weight"):
                one.grad = one.grad * factor
        if not _skips(transition, step):
            optimizer.step()
    return weights(model)


def _skips(transition: str, step: int) -> bool:
    return transition == "skip" and step == WHEN and dist.get_rank() == 1


def weights(model: Any) -> list[torch.Tensor]:
    """Return this rank's parts of the weights."""
    return [one.detach().to_local().clone() if hasattr(one, "to_local") else one.detach().clone()
            for one in model.parameters()]  # fmt: skip


def decide(cell: str) -> tuple[str, str]:
    """Run a cell on this rank. Return "exact", "typed" or a fault, with the first error."""
    regime, transition, point, kind = cell.split()
    reference = by_hand(regime, transition, point, kind)
    model, optimizer = REGIMES[regime]()
    do = th.scale(0.5) if kind == "modify" else th.stats()
    rig = th.attach(model, th.Hook("cell", on=TARGETS[point], at=point, do=do), optimizer=optimizer)
    saved = rig.state_dict()
    errors: list[str] = []
    slowest = 0.0

    def attempt(act: Callable[[], Any]) -> None:
        nonlocal slowest
        begun = time.monotonic()
        try:
            act()
        except th.TenterhookError as error:
            errors.append(f"{type(error).__name__}: {error.fact}")
        slowest = max(slowest, time.monotonic() - begun)

    for step in range(STEPS):
        if step == WHEN and dist.get_rank() == 1:
            attempt(lambda: TRANSITIONS[transition](rig, saved))
        backward(model, optimizer, step)
        if not _skips(transition, step):
            attempt(optimizer.step)
    same = all(torch.allclose(a, b, rtol=1e-12, atol=1e-14) for a, b in zip(weights(model), reference, strict=True))
    rig.detach()
    if slowest > group.PATIENCE + LATE:
        return "late", f"{slowest:.1f} s"
    if errors:
        return "typed", errors[0]
    return ("exact" if same else "differs"), ""


def main(cells: list[str]) -> None:
    dist.init_process_group("gloo")
    for cell in cells or CELLS:
        found: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(found, decide(cell))
        words = [word for word, _ in found]
        typed = "typed" in words
        # After an error, a rank may differ from the training by hand.
        outcome = "late" if "late" in words else "typed" if typed else "silent" if "differs" in words else "exact"
        told = next((text for word, text in found if word == "typed"), "")
        if dist.get_rank() == 0:
            print(f"cell {cell}: {outcome} {words} {told}", flush=True)
    leave()


if __name__ == "__main__":
    main(sys.argv[1:])
