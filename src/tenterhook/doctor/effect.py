"""What a rig does to the gradients and to the step: the same graph run backward with its hooks, and without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from tenterhook import ranks
from tenterhook.doctor.patch.events import mover
from tenterhook.doctor.rehearsal import rehearsal, silenced, step
from tenterhook.doctor.rules.no_effect import SCALE_FREE
from tenterhook.errors import RefusedError
from tenterhook.resolve.targets import targets_of
from tenterhook.rig import Rig
from tenterhook.text_table import TextTable

#: how a change is followed, in this order
STAGES = ("grad", "grad_final", "update")
#: an update that differs by less, relative to itself, is the same
SAME = 1e-4


@dataclass(frozen=True, slots=True)
class Stage:
    """One parameter at one stage, with the hooks and without; None where it had no gradient."""

    with_hooks: Tensor | None
    without: Tensor | None

    @property
    def difference(self) -> Tensor | None:
        """With the hooks minus without."""
        if self.with_hooks is None and self.without is None:
            return None
        zero = torch.zeros_like(self.with_hooks if self.with_hooks is not None else self.without)  # type: ignore[arg-type]
        return (self.with_hooks if self.with_hooks is not None else zero) - (
            self.without if self.without is not None else zero
        )

    @property
    def same(self) -> bool:
        return self.difference is None or not bool(self.difference.any())


class Effect(Mapping[str, dict[str, Stage]]):
    """By parameter, then by stage. Printed, it says for each parameter how far a change came."""

    def __init__(self, stages: dict[str, dict[str, Stage]], optimizers: Mapping[str, Optimizer | None]) -> None:
        self._stages = stages
        self._optimizers = optimizers

    def __getitem__(self, name: str) -> dict[str, Stage]:
        return self._stages[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stages)

    def __len__(self) -> int:
        return len(self._stages)

    def verdict(self, name: str) -> str:
        """How far the change came, and where it was undone."""
        stages = self._stages[name]
        if all(stage.same for stage in stages.values()):
            return "unchanged"
        final, update = stages.get("grad_final"), stages.get("update")
        if final is None or update is None:
            return "changed; no optimizer steps it"
        optimizer = self._optimizers.get(name)
        if final.same:
            return "undone before the step: another hook at grad_final makes it the same"
        kind = type(optimizer).__name__
        moved = _norm(update.with_hooks)
        if not _norm(final.with_hooks) and moved:
            return f"zero, and {kind} moves it all the same: by {_mover(optimizer, name)}"
        if _norm(update.difference) <= SAME * max(moved, _norm(update.without)):
            why = (
                "it divides each gradient by a running size of itself" if kind in SCALE_FREE else "its step is the same"
            )
            return f"undone by {kind}: {why}"
        return "reaches the parameter"

    def _table(self) -> TextTable:
        rows = []
        for name, stages in self._stages.items():
            cells: list[object] = [name]
            for stage in STAGES:
                found = stages.get(stage)
                cells += [_norm(found.without), _norm(found.with_hooks)] if found is not None else [None, None]
            rows.append([*cells, self.verdict(name)])
        head = ("parameter", *(f"{s} {w}" for s in STAGES for w in ("without", "with")), "verdict")
        return TextTable("norms without the hooks, and with them", head, rows)

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()


def _norm(tensor: Tensor | None) -> float:
    return 0.0 if tensor is None else float(tensor.double().norm())


def _mover(optimizer: Optimizer | None, name: str) -> str:
    return mover(optimizer.param_groups[0]) if optimizer is not None else "something else"


def effect(rig: Rig, loss: Tensor) -> Effect:
    """Run the graph of the loss backward twice, with the rig's hooks and without, and one step of each optimizer.

    Everything is put back: parameters, buffers, gradients, optimizer and hook state, counters, random numbers. The
    graph is kept, so the training goes on with `loss.backward()`. What hooks did to the forward is in both runs. Hooks
    that are not the rig's run in both, and a tensor that is no leaf but retains its gradient gets that of both.
    """
    model = rig._attached_model()
    if not isinstance(loss, Tensor):
        raise RefusedError(
            f"effect was given a {type(loss).__name__}", remedy="loss = criterion(model(x), y); th.effect(rig, loss)"
        )
    if ranks.world_size() > 1:
        raise RefusedError(
            "effect runs a backward twice, and on several ranks each would be reduced",
            remedy="run it on one process, with one rank's batch",
        )
    if not loss.requires_grad:
        raise RefusedError("the loss requires no gradient", remedy="give the loss of this model's last forward")
    parameters = {
        name: p for name, target in targets_of(model, {}).parameters.items() if (p := target.parameter()) is not None
    }
    optimizers = rig._installer.environment.model.optimizers()
    holder = {id(p): o for o in optimizers.values() for g in o.param_groups for p in g["params"]}
    runs = [_run(rig, loss, parameters, optimizers, hooked=hooked) for hooked in (True, False)]
    stages = {
        name: {stage: Stage(runs[0][stage].get(name), runs[1][stage].get(name)) for stage in STAGES if stage in runs[0]}
        for name in parameters
    }
    return Effect(stages, {name: holder.get(id(p)) for name, p in parameters.items()})


def _run(
    rig: Rig, loss: Tensor, parameters: Mapping[str, Tensor], optimizers: Mapping[str, Optimizer], *, hooked: bool
) -> dict[str, dict[str, Tensor]]:
    stages: dict[str, dict[str, Tensor]] = {}
    with rehearsal(rig, loss, optimizers.values()), nullcontext() if hooked else silenced(rig):
        loss.backward(retain_graph=True)
        stages["grad"] = _grads(parameters)
        if optimizers:
            stages["grad_final"], stages["update"] = {}, {}
        for optimizer in optimizers.values():
            mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
            held = {name: p for name, p in parameters.items() if id(p) in mine}
            before = {name: p.detach().clone() for name, p in held.items()}
            try:
                step(optimizer, lambda held=held: stages["grad_final"].update(_grads(held)))  # type: ignore[misc]
            except TypeError as error:
                raise RefusedError(
                    f"the step of {type(optimizer).__name__} needs a closure", remedy="attach without this optimizer"
                ) from error
            stages["update"].update({name: p.detach() - before[name] for name, p in held.items()})
    return stages


def _grads(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: p.grad.detach().clone() for name, p in parameters.items() if p.grad is not None}
