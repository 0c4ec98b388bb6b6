"""A script as it is: each model that it trains gets a rig, and a run folder."""

from __future__ import annotations

import os
import warnings
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from torch import nn
from torch.optim import Optimizer

from tenterhook import ranks
from tenterhook.actions import histogram, ratio, spike, stats, watch_nonfinite
from tenterhook.adapters.discover import Discovery
from tenterhook.doctor import Findings, check
from tenterhook.errors import TenterhookError
from tenterhook.plan import Hook, Plan, When
from tenterhook.record import FINDINGS, Flight, Store, last_step
from tenterhook.resolve.targets import class_name, unwrapped
from tenterhook.rig import Rig, attach

#: a plan file that takes the place of the one that was asked for, say when a script goes on from a checkpoint
OVERRIDE = "TENTERHOOK_PLAN"


def default_plan() -> Plan:
    """Statistics of all gradients in every step, of outputs and updates in one of ten, magnitudes in one of fifty; two
    triggers; after a trip, outputs in every step for a while."""
    seldom, everything = When(every=10, start=1), (".", "**")
    return Plan(
        [
            Hook("grads", on="**", at="grad_final", do=stats()),
            Hook("outputs", on=everything, at="output", do=stats(), when=seldom),
            Hook("updates", on="**", at="update", do=ratio(), when=seldom),
            Hook("magnitudes", on="**", at="grad_final", do=histogram(), when=When(every=50, start=1)),
            Hook("nonfinite", on="**", at="grad_final", do=watch_nonfinite()),
            Hook("leap", on="**", at="grad_final", do=spike(z=8.0, floor=0.1)),
            Hook("outputs_after", on=everything, at="output", do=stats(), when=When(after_trip=10)),
        ]
    )


@dataclass(slots=True)
class Watched:
    """One model of the script, and what became of it."""

    name: str
    path: Path
    #: on the first rank of each node: what is the same on all ranks is written by the first of all
    sinks: list[Store | Flight]
    optimizers: list[str] = field(default_factory=list)
    rig: Rig | None = None
    #: hooks that could not be attached, and why
    refused: dict[str, str] = field(default_factory=dict)
    steps: int = 0
    findings: Findings = field(default_factory=lambda: Findings([]))

    def end(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.rig is None:
            return
        self.steps, self.findings = self.rig.step_count, check(self.rig)
        for sink in self.sinks:
            if isinstance(sink, Store) and ranks.launched()[0] == 0:
                sink.keep(FINDINGS, self.findings.to_json())
        self.rig.__exit__(kind, error, tb)


class Script:
    """Around a program: `models` is what it trained. A plan of one's own is attached as it is; of the default plan,
    what a model cannot give is left out and said."""

    def __init__(self, out: str | os.PathLike[str], *, plan: Plan | None = None) -> None:
        override = os.environ.get(OVERRIDE)
        self.plan = Plan.load(override) if override else plan
        self.out = Path(out)
        self.models: list[Watched] = []
        self._known: weakref.WeakKeyDictionary[nn.Module, Watched] = weakref.WeakKeyDictionary()
        self._discovery = Discovery(self._found)

    def __enter__(self) -> Script:
        # A script that makes another optimizer is followed, so it is no news that the first is gone.
        warnings.filterwarnings("ignore", message="tenterhook: the .* given to attach no longer exists")
        self._discovery.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._discovery.__exit__(kind, error, tb)
        for model in self.models:
            model.end(kind, error, tb)

    def _found(self, model: nn.Module, optimizers: list[Optimizer]) -> None:
        """Inside the optimizer's step: whatever goes wrong, the script goes on."""
        try:
            self._watch(model, optimizers)
        except Exception as error:
            warnings.warn(f"tenterhook run could not attach to {type(model).__name__}: {error}", stacklevel=2)

    def _watch(self, model: nn.Module, optimizers: list[Optimizer]) -> None:
        watched = self._known.get(model) or self._named(class_name(type(unwrapped(model))))
        self._known[model] = watched
        watched.optimizers = [type(o).__name__ for o in optimizers]
        before, state = watched.rig, None
        if before is None:
            step = _begun(watched.path, optimizers)
        else:
            step = max(before.step_count, _stepped(optimizers))
            state = before.state_dict() if before._installer.environment.model.root() is model else None
            before.detach()
        watched.rig = self._attach(model, optimizers, watched)
        if watched.rig is not None:
            watched.rig._begin_at(step)
            if state is not None:
                watched.rig.load_state_dict(state, strict=False)

    def _attach(self, model: nn.Module, optimizers: list[Optimizer], watched: Watched) -> Rig | None:
        plan = self.plan or default_plan()
        optimizer = optimizers if len(optimizers) > 1 else optimizers[0]
        while len(plan):
            try:
                return attach(model, plan, optimizer=optimizer, sinks=watched.sinks)
            except TenterhookError as error:
                watched.refused[error.hook or "plan"] = str(error)
                if self.plan is not None or error.hook is None:
                    # At once: a script may run for days without what its plan was to change.
                    warnings.warn(f"tenterhook run: {watched.name} goes on without the plan: {error}", stacklevel=2)
                    return None
                plan = Plan(hook for hook in plan if hook.id != error.hook)
        return None

    def _named(self, name: str) -> Watched:
        """The next free place of the name. A model that is gone, and was loaded into another object, leaves its own."""
        number, free = 1, name
        while (there := next((m for m in self.models if m.name == free), None)) is not None:
            if there.rig is not None and there.rig._installer.environment.model.root() is None:
                return there
            number += 1
            free = f"{name}-{number}"
        path = self.out / free
        rank, on_node = ranks.launched()
        sinks: list[Store | Flight] = [Store(path)] if on_node == 0 else []
        if rank == 0:
            sinks.append(Flight(path / "flights"))
        self.models.append(Watched(free, path, sinks))
        return self.models[-1]

    # -- what it says ------------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        if not self.models:
            return (
                "tenterhook: no optimizer stepped in this process, so there was nothing to attach to\n"
                "  torchrun ... -m tenterhook run script.py  # for a script that starts processes of its own"
            )
        return "\n".join(line for model in self.models for line in _said(model))


def _said(model: Watched) -> list[str]:
    by = ", ".join(model.optimizers)
    if model.rig is None:
        return [f"tenterhook: {model.name} ({by}) is not watched", *(f"  {why}" for why in model.refused.values())]
    lines = [f"tenterhook: {model.name} ({by}), {model.steps} steps -> {model.path}"]
    lines += [f"  left out: {why}" for why in model.refused.values()]
    lines += [f"  {line}" for report in model.rig.reports for line in str(report).split("\n")]
    lines += [f"  {line}" for finding in model.findings.grave for line in str(finding).split("\n")]
    return lines


def _begun(path: Path, optimizers: list[Optimizer]) -> int:
    """The step that a script goes on from: its optimizer may know; or else, after what the folder has."""
    return _stepped(optimizers) or last_step(path) + 1


def _stepped(optimizers: list[Optimizer]) -> int:
    """Steps that they count themselves, as Adam does; 0 if none does."""
    states = [state for o in optimizers for state in o.state.values() if isinstance(state, dict)]
    return max((int(state["step"]) for state in states if "step" in state), default=0)
