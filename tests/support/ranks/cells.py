"""Decide every cell of the given regimes in the matrix.

python -m torch.distributed.run ... -m tests.support.ranks.cells REGIME...
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import tenterhook as th
from tenterhook.actions.definition import TENSOR_POINTS
from tenterhook.plan import POINTS
from tests.support.ranks.launch import leave
from tests.support.ranks.regimes import REGIMES, Regime
from tests.support.rig.by_hand import Hand, target
from tests.support.rig.matrix import CHANGES


def full(tensor: Any) -> Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def plain(tensor: Any) -> Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def action(point: str, change: Any, seen: list[Any]) -> tuple[Any, th.Registry]:
    """Make an elementwise action, which is allowed on a part of a tensor, and a registry that has it."""
    registry = th.Registry()
    if point not in TENSOR_POINTS:
        return lambda value: seen.append(type(value).__name__), registry

    @th.action("see", registry=registry, modifies=change is not None, elementwise=True)
    def see(value: Tensor) -> Tensor | None:
        seen.append(plain(value.detach()).clone())
        return change(value) if change is not None else None

    return see(), registry


def decide(point: str, regime: Regime) -> str:
    try:
        for change in CHANGES.values() if POINTS[point].modifies else (None,):
            exact(point, regime, change)
    except th.RefusedError as refusal:
        return f"refused: {refusal.fact}"
    try:
        if point in TENSOR_POINTS:
            measured(point, regime)
    except th.RefusedError as refusal:
        return f"elementwise: {refusal.fact}"
    return "exact"


def exact(point: str, regime: Regime, change: Any) -> None:
    hand = Hand(point, change)
    by_hand = regime.by_hand(hand)
    model, seen = regime.spread(regime.build()), []
    optimizer = regime.optimizer(model)
    do, registry = action(point, change, seen)
    hook = th.Hook("cell", on=target(point, regime.prefix), at=point, do=do, when=th.When(phase="any"))
    rig = th.attach(model, hook, optimizer=optimizer, actions=registry)
    regime.train(model, optimizer)
    wanted = hand.seen if regime.here or POINTS[point].on == ("optimizer",) else []
    reasons: list[Any] = [None] * dist.get_world_size()
    skipped = [why for site in rig.ledger["cell"].values() for why in site.skipped or ()]
    dist.all_gather_object(reasons, skipped[0] if wanted and not seen and skipped else None)
    if any(reasons):  # the ledger of a rank says why it saw nothing
        rig.detach()
        raise th.RefusedError(next(filter(None, reasons)))
    assert len(seen) == len(wanted) and hand.seen, f"{point}: saw {len(seen)}, by hand {len(wanted)}"
    for mine, theirs in zip(seen, wanted, strict=True):
        if isinstance(mine, Tensor):
            torch.testing.assert_close(mine, regime.part(theirs, point), rtol=regime.close, atol=1e-15)
    assert sum(site.fired for site in rig.ledger["cell"].values()) == len(seen)
    assert rig.ledger["cell"].changed == (len(seen) if change else 0)
    same(model, by_hand, regime)
    rig.detach()


def measured(point: str, regime: Regime) -> None:
    """Check that `stats` measures the whole tensor, and is the same on every rank that has the signal."""
    hand = Hand(point)
    by_hand = regime.by_hand(hand)
    model = regime.spread(regime.build())
    optimizer = regime.optimizer(model)
    hook = th.Hook("cell", on=target(point, regime.prefix), at=point, do=th.stats())
    rig = th.attach(model, hook, optimizer=optimizer)
    regime.train(model, optimizer)
    each = len(hand.seen) // 3
    last = torch.stack(hand.seen[-each:]).double()
    norm = last.norm().item()
    known = regime.here or point in ("grad_final", "update")  # these signals are measured over all ranks
    assert bool(rig.values("cell")) is known
    numbers = next(iter(rig.values("cell").values())) if known else {"norm": norm, "abs_max": last.abs().max().item()}
    assert abs(numbers["norm"] - norm) <= max(1e-9, regime.close) * norm, (point, numbers, norm)
    assert abs(numbers["abs_max"] - last.abs().max().item()) <= 1e-9
    same(model, by_hand, regime)
    rig.detach()


def same(model: Any, by_hand: Any, regime: Regime) -> None:
    theirs = dict(by_hand.named_parameters())
    for name, mine in getattr(model, "module", model).named_parameters():
        hand = theirs[regime.name_of(name)]
        torch.testing.assert_close(full(mine.detach()), hand.detach(), rtol=regime.close, atol=1e-15)


def main(names: list[str]) -> None:
    dist.init_process_group("gloo")
    for name in names:
        for point in POINTS:
            outcome = decide(point, REGIMES[name]())
            if dist.get_rank() == 0:
                print("cell", json.dumps([name, point, outcome]), flush=True)
    leave()


if __name__ == "__main__":
    main(sys.argv[1:])
