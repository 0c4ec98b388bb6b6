"""Attach to the models that an unmodified script trains. Each model has its own rig and run folder."""

from __future__ import annotations

import json
import os
import warnings
import weakref
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType

from torch import nn
from torch.optim import Optimizer

from tenterhook import ranks
from tenterhook.actions import histogram, replicas
from tenterhook.adapters.discover import Discovery, Moment
from tenterhook.diff.plan import DiffRun, diff_plan, perturb
from tenterhook.doctor import Findings, check
from tenterhook.errors import PlanError, TenterhookError
from tenterhook.plan import Hook, Plan, When
from tenterhook.record import FINDINGS, Flight, Store, Verdict, last_step
from tenterhook.resolve.targets import class_name, unwrapped
from tenterhook.rig import Rig, attach
from tenterhook.rig.display import why_nothing
from tenterhook.switch import is_off
from tenterhook.verdict import Alert, flight_plan, idle_optimizer, watch_training

#: environment variable with the path of a plan file that overrides the given plan, for example in a resumed script
PLAN_VARIABLE = "TENTERHOOK_PLAN"


def default_plan() -> Plan:
    """Return the plan that is used if the user does not provide one.

    It is the plan of a flight recorder, with gradient histograms in every fiftieth step. On several ranks, replicas are
    compared.
    """
    magnitudes = Hook("magnitudes", on="**", at="grad_final", do=histogram(), when=When(every=50, start=1))
    compared = [Hook("replicas", on="**", at="grad_final", do=replicas())] if ranks.world_size() > 1 else []
    return Plan([*flight_plan(), magnitudes, *compared])


@dataclass(slots=True)
class ModelRun:
    """One of the models that the script trains, with its rig, sinks and results."""

    name: str
    path: Path
    #: empty except on the first rank of each node; rank 0 writes the numbers that are equal on all ranks
    sinks: list[Store | Flight]
    optimizers: list[str] = field(default_factory=list)
    rig: Rig | None = None
    #: for each hook that could not be attached, the reason
    refused: dict[str, str] = field(default_factory=dict)
    steps: int = 0
    #: number of steps that the folder contained before
    resumed: int = 0
    #: if no hook recorded anything, the reason for each hook
    silence: list[str] = field(default_factory=list)
    findings: Findings = field(default_factory=lambda: Findings([]))
    #: True if the model no longer trains on its own
    ended: bool = False
    #: what went wrong in the training, the cause first
    verdicts: list[Verdict] = field(default_factory=list)

    def end(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Check the rig, write the findings and detach the rig."""
        if self.rig is None or self.ended:
            return
        self.ended = True
        self.steps, self.findings = self.rig.step_count, check(self.rig)
        self.silence = _why_nothing(self.rig)
        for sink in self.sinks:
            if isinstance(sink, Store) and ranks.launch_ranks()[0] == 0:
                sink.keep(FINDINGS, self.findings.to_json())
        self.rig.__exit__(kind, error, tb)
        self.verdicts = self.rig.verdicts


class AutoAttach:
    """A context manager that attaches to every model trained inside the `with` block, and lists the models in `models`.

    If the user provides a plan, either all of its hooks are attached or none. If the default plan is used, hooks that
    cannot be attached are left out and reported.

    Args:
        out: Folder for the run folders.
        plan: The hooks, or None for the default plan.
        alert: Function that is called with each new verdict.
        for_diff: If given, record what a comparison of two runs needs, from the first forward pass on. Otherwise, a
            model is known when its optimizer takes its first step.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        *,
        plan: Plan | None = None,
        alert: Alert | None = None,
        for_diff: DiffRun | None = None,
    ) -> None:
        override = os.environ.get(PLAN_VARIABLE)
        try:
            self.plan = Plan.load(override) if override else plan
        except PlanError as error:
            error.fact = f"the environment variable {PLAN_VARIABLE}: {error.fact}"
            error.remedy = f"{error.remedy or 'correct the file'}, or unset {PLAN_VARIABLE}"
            raise
        self.out = Path(out)
        self._alert = alert if ranks.launch_ranks()[0] == 0 else None
        self.models: list[ModelRun] = []
        self._known: weakref.WeakKeyDictionary[nn.Module, ModelRun] = weakref.WeakKeyDictionary()
        self._discovery = Discovery(self._on_model, at_first_forward=for_diff is not None)
        self._for_diff = for_diff

    def __enter__(self) -> AutoAttach:
        # If the script creates a new optimizer, we attach to it, so the warning about the old optimizer is not needed.
        warnings.filterwarnings("ignore", message="tenterhook: the .* given to attach no longer exists")
        self._discovery.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._discovery.__exit__(kind, error, tb)
        for model in self.models:
            model.end(kind, error, tb)
        if sum(bool(model.steps) for model in self.models) > 1:
            # The losses of models that train against each other need not fall.
            for model in self.models:
                model.verdicts = [one for one in model.verdicts if one.code != "TH815"]

    def _on_model(self, model: nn.Module, optimizers: list[Optimizer], moment: Moment) -> None:
        """Attach to a model when an optimizer steps. Report an error as a warning, so that the script continues."""
        try:
            self._follow(model, optimizers, moment)
        except Exception as error:
            ranks.warn_once(f"tenterhook run could not attach to {type(model).__name__}: {error}")

    def _follow(self, model: nn.Module, optimizers: list[Optimizer], moment: Moment) -> None:
        """Attach to a model, or reattach if the model has a new optimizer. The new rig continues the step count."""
        run = self._known.get(model) or self._run_named(class_name(type(unwrapped(model))))
        self._known[model] = run
        run.optimizers = [type(o).__name__ for o in optimizers]
        before, state = run.rig, None
        if before is None:
            run.resumed = last_step(run.path) + 1
            step = _steps_counted(optimizers) or run.resumed
        else:
            step = max(before.step_count, _steps_counted(optimizers))
            state = before.state_dict() if before._installer.environment.model.root() is model else None
            before.detach()
        inside = set(model.modules())
        for other in self.models:  # a model that is now a part of this one, as in fine-tuning with an adapter
            root = other.rig._installer.environment.model.root() if other.rig is not None else None
            if other is not run and root in inside:
                other.end(None, None, None)
        run.rig = self._attach(model, optimizers, run)
        if run.rig is not None:
            if self._for_diff is not None and self._for_diff.perturbed and before is None:
                perturb(model)
            watch_training(run.rig, optimizers, first=step, alert=self._alert)
            run.rig._begin_at(step, forward_is_over=moment == "step")
            if state is not None:
                run.rig.load_state_dict(state, strict=False)

    def _attach(self, model: nn.Module, optimizers: list[Optimizer], run: ModelRun) -> Rig | None:
        """Attach the given plan. If there is none, attach the hooks of the default plan that can be attached."""
        plan = self.plan or (diff_plan(self._for_diff.steps) if self._for_diff else default_plan())
        optimizer = optimizers if len(optimizers) > 1 else optimizers[0]
        while len(plan):
            try:
                return attach(model, plan, optimizer=optimizer, sinks=run.sinks)
            except TenterhookError as error:
                run.refused[error.hook or "plan"] = str(error)
                if self.plan is not None or error.hook is None:
                    # Warn now instead of at the end, because the script may run for days without the plan.
                    ranks.warn_once(f"tenterhook run: {run.name} continues without the plan: {error}")
                    return None
                plan = Plan(hook for hook in plan if hook.id != error.hook)
        return None

    def _run_named(self, name: str) -> ModelRun:
        """Return a new run with this name, and append a number if the name is in use.

        If the model of an earlier run with this name no longer exists, return that run instead, because the script has
        probably loaded the model into a new object.
        """
        number, free = 1, name
        while (there := next((m for m in self.models if m.name == free), None)) is not None:
            if there.rig is not None and there.rig._installer.environment.model.root() is None:
                return there
            number += 1
            free = f"{name}-{number}"
        path = self.out / free
        rank, on_node = ranks.launch_ranks()
        # For a comparison, every rank records its own outputs.
        sinks: list[Store | Flight] = [Store(path)] if on_node == 0 or self._for_diff else []
        if rank == 0:
            sinks.append(Flight(path / "flights"))
        self.models.append(ModelRun(free, path, sinks))
        return self.models[-1]

    # -- the summary -------------------------------------------------------------------------------------------------

    @property
    def verdict(self) -> Verdict | None:
        """Return the cause of what went wrong, or None. If several models have a verdict, the earliest one counts."""
        found = [model.verdicts[0] for model in self.models if model.verdicts] + self._idle()
        return min(found, key=lambda one: (one.severity != "error", one.step), default=None)

    def _idle(self) -> list[Verdict]:
        """Return a verdict for each optimizer whose parameters belong to no model and never had a gradient."""
        return [one for idle in self._discovery.idle.items() if (one := idle_optimizer(*idle)) is not None]

    def to_json(self) -> str:
        """Return the summary as JSON, with all verdicts."""
        models = [
            {
                "name": model.name,
                "optimizers": model.optimizers,
                "steps": model.steps,
                "path": str(model.path),
                "verdicts": [asdict(one) for one in model.verdicts],
                "findings": [asdict(one) for one in model.findings.grave],
                "refused": model.refused,
            }
            for model in self.models
        ]
        verdict = self.verdict
        return json.dumps({"verdict": asdict(verdict) if verdict else None, "models": models}, indent=1)

    def __str__(self) -> str:
        idle = [f"tenterhook: {verdict}" for verdict in self._idle()]
        if not self.models:
            return "\n".join([*idle, _nothing_to_attach_to(self._discovery.unreported)])
        return "\n".join([*idle, *(line for model in self.models for line in _summary(model))])


def _why_nothing(rig: Rig) -> list[str]:
    """Return the reason for each hook if none of them fired, otherwise an empty list."""
    if any(account.fired for account in rig.ledger.values()):
        return []
    if is_off():
        return ["TENTERHOOK=0 is set"]
    return [
        f"hook {id!r} at {account.hook.at}: {why_nothing(account, rig.step_count)}"
        for id, account in rig.ledger.items()
    ]


def _nothing_to_attach_to(unreported: Mapping[str, str]) -> str:
    """Explain why no model was found. `unreported` has the reason for each optimizer that stepped."""
    if unreported:
        return "\n".join(
            f"tenterhook: {name} stepped, but nothing was recorded: {why}" for name, why in unreported.items()
        )
    return (
        "tenterhook: no optimizer stepped in this process, so nothing was recorded\n"
        "  remedy: call optimizer.step() in the script; if the script starts its own processes, write\n"
        "  torchrun ... -m tenterhook run script.py"
    )


def _summary(model: ModelRun) -> list[str]:
    by = ", ".join(model.optimizers)
    if model.rig is None:
        return [f"tenterhook: {model.name} ({by}) is not watched", *(f"  {why}" for why in model.refused.values())]
    lines = [f"tenterhook: {model.name} ({by}), {model.steps} steps -> {model.path}"]
    lines += [f"  the folder contained a run of {model.resumed} steps, which this one continues"] * bool(model.resumed)
    lines += [f"  {line}" for verdict in model.verdicts[:1] for line in str(verdict).split("\n")]
    lines += [f"  left out: {why}" for why in model.refused.values()]
    lines += [f"  recorded nothing: {why}" for why in model.silence]
    # A verdict names the cause. Without one, the suspects of a flight report may help.
    reports = [f"flight report: {report.path}" if model.verdicts else str(report) for report in model.rig.reports]
    lines += [f"  {line}" for report in reports for line in report.split("\n")]
    lines += [f"  {line}" for finding in model.findings.grave for line in str(finding).split("\n")]
    return lines


def _steps_counted(optimizers: list[Optimizer]) -> int:
    """Return the largest step count in the state of the optimizers, or 0 if none of them counts steps."""
    states = [state for o in optimizers for state in o.state.values() if isinstance(state, dict)]
    return max((int(state["step"]) for state in states if "step" in state), default=0)
