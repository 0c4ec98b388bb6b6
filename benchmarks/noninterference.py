"""Check that a plan with observers at every point leaves a run the same bit for bit.

    python benchmarks/noninterference.py [200]

This trains a tiny GPT-2 and a tiny Mixtral, each with and without the plan, and compares the parameters, the optimizer
states and the RNG states.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

import tenterhook as th
from tests.support.models import zoo


def observing_plan() -> th.Plan:
    tensors = ("input", "output", "grad_output", "grad_input", "grad", "grad_accumulated", "grad_final", "update")
    everything = {p: (".", "**") if p in ("input", "output", "grad_output", "grad_input") else "**" for p in tensors}
    hooks = [th.Hook(p, on=on, at=p, do=th.stats()) for p, on in everything.items()]
    hooks += [
        th.Hook(f"keep.{p}", on=on, at=p, do=th.capture(), when=th.When(every=20)) for p, on in everything.items()
    ]
    hooks += [th.Hook(p, on="**", at=p, do=_look) for p in ("value", "value_grad", "step_pre", "step_post")]
    hooks += [th.Hook(p, on=(".", "**"), at=p, do=_look) for p in ("save_pre", "save_post", "load_pre", "load_post")]
    return th.Plan(hooks)


def _look(value: object) -> None:
    return None


def bits(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    found: dict[str, Any] = dict(model.state_dict())
    for i, state in optimizer.state_dict()["state"].items():
        found.update({f"{i}.{k}": v for k, v in state.items()})
    found["rng"] = torch.get_rng_state()
    return found


def compare(name: str, steps: int) -> tuple[int, int]:
    """Compare two runs, and return the number of compared tensors and the number of firings in the observed run."""
    runs = []
    for observed in (False, True):
        model, optimizer = zoo.build(name)
        rig = th.attach(model, observing_plan(), optimizer=optimizer) if observed else None
        zoo.train(name, model, optimizer, steps)
        runs.append(bits(model, optimizer))
    assert rig is not None
    fired = sum(account.fired for account in rig.ledger.values())
    assert list(runs[0]) == list(runs[1])
    for key, value in runs[0].items():
        assert torch.equal(value, runs[1][key]), f"{name}: {key} differs"
    return len(runs[0]), fired


if __name__ == "__main__":
    torch.set_num_threads(1)
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    for name in ("gpt2", "mixtral"):
        tensors, fired = compare(name, steps)
        print(f"{name}: {steps} steps, {fired} firings, {tensors} tensors and the RNG state equal bit for bit")
