"""A plan whose hooks all have something to lose: running means, random numbers, counters."""

from __future__ import annotations

import hashlib

from torch import nn

import tenterhook as th


def plan(on: str = "**") -> th.Plan:
    return th.Plan(
        [
            th.Hook("clip", on=on, at="grad_final", do=th.clip_zscore(z=1.0, warmup=2)),
            th.Hook("noise", on=f"{on}.weight", at="grad_final", do=th.noise(0.01, seed=3)),
            th.Hook("norms", on=on, at="grad_final", do=th.stats()),
            th.Hook("leap", on=on, at="grad_final", do=th.spike()),
        ]
    )


def digest(model: nn.Module, rig: th.Rig) -> str:
    """Of every weight, and of all that the hooks carry."""
    bits = hashlib.sha256()
    for name, tensor in sorted({**model.state_dict(), **rig.state_dict()}.items()):
        bits.update(name.encode() + tensor.detach().contiguous().flatten().view(-1).numpy().tobytes())
    return bits.hexdigest()
