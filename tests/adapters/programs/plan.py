"""What the programs have in common: a plan whose hooks all have something to lose, and what is told at the end."""

from __future__ import annotations

import argparse
import hashlib

from torch import nn

import tenterhook as th


def options() -> argparse.Namespace:
    """What every program takes: where to, when to die, whether to go on."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--die-at", type=int)
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args()


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
