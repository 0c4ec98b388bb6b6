"""Compares GPT-2 and Llama with hooks in compiled code to the same models in eager mode.

Run it with `python -m tests.support.compiled.models [STEPS]`. The plan has four actions at four points; some are due
in every step, some in every second or third step. A hooked run may differ between compiled and eager mode only as much
as a run without hooks does, plus rounding.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch._dynamo.utils import counters

import tenterhook as th
from tests.support.models import zoo

#: name of the list of blocks, and of a module in each block
BLOCKS = {"gpt2": ("transformer.h", "mlp"), "llama": ("model.layers", "mlp")}
HOWS = ("whole", "by block")
#: how much more a hooked run may differ than a bare run; far more float32 numbers of it are compared
ROUNDING = 1e-5
#: the results of `stats` that are compared; a mean near zero and the number of zeros depend on rounding errors
STABLE = ("norm", "rms", "abs_max", "nonfinite")


def plan(name: str) -> th.Plan:
    blocks, inner = BLOCKS[name]
    values: dict[str, Any] = {"on": [f"{blocks}.*", f"{blocks}.*.{inner}"]}
    modules: dict[str, Any] = {"on": f"{blocks}.*.{inner}"}
    hooks: list[th.Hook] = []
    for at in ("output", "grad_output", "grad", "grad_final"):
        changed = modules if at in ("output", "grad_output") else {"on": f"{blocks}.**"}
        limit = 1.0 if at == "output" else 1e-3
        hooks += [
            th.Hook(f"before.{at}", at=at, do=th.stats(), **(values if changed is modules else {"on": "**"})),
            th.Hook(f"scale.{at}", at=at, do=th.scale(0.9), when=th.When(every=2), **changed),
            th.Hook(f"value.{at}", at=at, do=th.clip_value(limit), when=th.When(every=3), **changed),
            th.Hook(f"norm.{at}", at=at, do=th.clip_norm(limit * 2), **changed),
            th.Hook(f"after.{at}", at=at, do=th.stats(), **changed),
        ]
    return th.Plan(hooks)


def run(name: str, how: str | None, *, hooked: bool, steps: int, backend: str) -> tuple[dict[str, Any], th.Rig | None]:
    """Run one training, and return the losses, weights and recorded numbers, and the rig.

    Check that exactly one graph was compiled, in the first two steps, without graph breaks.
    """
    torch._dynamo.reset()
    counters.clear()
    model, optimizer = zoo.build(name)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    rig = th.attach(model, plan(name), optimizer=optimizer) if hooked else None
    runs: nn.Module = model
    if how == "whole":
        runs = torch.compile(model, backend=backend, fullgraph=True)
    elif how == "by block":
        for block in model.get_submodule(BLOCKS[name][0]).children():
            block.compile(backend=backend, fullgraph=True)
    seen: dict[str, Any] = {}
    for step in range(steps):
        optimizer.zero_grad()
        ids = zoo.batch(name, step)["input_ids"]
        logits = runs(input_ids=ids, use_cache=False).logits
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        seen[f"{step} loss"] = loss.item()
        for id in rig.ledger if rig is not None else ():
            for target, numbers in rig.values(id).items():
                seen |= {f"{step} {id} {target} {key}": numbers[key] for key in STABLE}
        if step == 1:
            early = counters["stats"]["unique_graphs"]
    seen |= {f"weight {key}": value.double() for key, value in model.state_dict().items()}
    if how is not None:
        assert not counters["graph_break"], dict(counters["graph_break"])
        assert early == counters["stats"]["unique_graphs"] == 1, f"{early} graphs, then {dict(counters['stats'])}"
    return seen, rig


def differences(a: dict[str, Any], b: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the relative difference of each number."""
    assert list(a) == list(b), set(a) ^ set(b)
    for key, x in a.items():
        x, y = torch.as_tensor(x, dtype=torch.float64), torch.as_tensor(b[key], dtype=torch.float64)
        scale = x.abs().max().clamp(min=1e-6)
        yield key, float((x - y).abs().max() / scale)


def compare(name: str, how: str, *, steps: int, backend: str = "inductor") -> str:
    bare = max(d for _, d in differences(
        run(name, None, hooked=False, steps=steps, backend=backend)[0],
        run(name, how, hooked=False, steps=steps, backend=backend)[0],
    ))  # fmt: skip
    eager, by_eager = run(name, None, hooked=True, steps=steps, backend=backend)
    compiled, rig = run(name, how, hooked=True, steps=steps, backend=backend)
    assert by_eager is not None and rig is not None
    key, most = max(differences(eager, compiled), key=lambda found: found[1])
    assert most <= bare + ROUNDING, f"{key} differs by {most:.1e}, the bare runs by {bare:.1e}"
    for id, account in rig.ledger.items():
        assert (account.fired, account.due) == (by_eager.ledger[id].fired, by_eager.ledger[id].due), id
        assert account.fired and bool(account.changed) == (not id.startswith(("before", "after"))), id
    return (
        f"{name}, {how}: {steps} steps, {len(eager)} numbers, 1 graph, 0 breaks; "
        f"differs from eager by {most:.1e}, without hooks by {bare:.1e}"
    )


if __name__ == "__main__":
    for name in BLOCKS:
        for how in HOWS:
            print(compare(name, how, steps=int(sys.argv[1]) if len(sys.argv) > 1 else 50), flush=True)
