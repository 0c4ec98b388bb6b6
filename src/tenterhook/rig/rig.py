"""The rig: a plan, installed on a model."""

from __future__ import annotations

import gc
import itertools
import warnings
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import Enum, auto
from functools import partial
from types import TracebackType
from typing import Any

from torch import Tensor, nn

from tenterhook import ranks
from tenterhook import torch_internals as private
from tenterhook.actions import Registry
from tenterhook.errors import AttachedError, nearest
from tenterhook.plan import Hook, Plan
from tenterhook.record import LEDGER, PLAN, FlightReport, Recorder, Row, Sinks, as_sinks
from tenterhook.resolve.agreement import resolve_on_all_ranks, same_on_all_ranks
from tenterhook.resolve.model_view import ModelView
from tenterhook.resolve.resolution import Resolution, resolve
from tenterhook.rig.display import last_values, rig_tables
from tenterhook.rig.installer import Installer
from tenterhook.rig.ledger import Ledger
from tenterhook.rig.model_sync import ModelSync
from tenterhook.rig.points.taps import Taps
from tenterhook.rig.registrations import Registrations
from tenterhook.rig.root_hooks import RootEvents, RootHooks, roots_on
from tenterhook.rig.run_files import ledger_json, model_snapshot, plan_json
from tenterhook.rig.runtime.attached_hook import AttachedHook
from tenterhook.rig.runtime.environment import Environment
from tenterhook.rig.runtime.step_clock import StepClock
from tenterhook.rig.saved.format import SavedState, SizeLimits, read
from tenterhook.rig.saved.load_report import LoadReport
from tenterhook.rig.saved.loader import (
    HookSnapshot,
    compare,
    compare_clocks,
    compare_hooks,
    compare_tensors,
    place,
    place_clock,
)
from tenterhook.rig.saved.renaming import Renaming
from tenterhook.rig.saved.writer import clock_as_saved, gather_state, pack, tensors_of
from tenterhook.rig.step.end_of_step import StepFinalizer, StepSource
from tenterhook.rig.step.optimizer_step import OptimizerStep

_numbers = itertools.count()


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector: it would walk over a hundred thousand new sites again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class RigStatus(Enum):
    """Where a rig is in its life."""

    ATTACHED = auto()
    #: detached inside a forward that it modifies; it leaves when that forward ends
    LEAVING = auto()
    DETACHED = auto()


class Rig:
    """Lives with the model until `detach()`, which leaves the model as if it had never been touched."""

    def __init__(
        self,
        model: nn.Module,
        plan: Plan,
        resolution: Resolution,
        *,
        clock: str | None,
        sinks: Sinks,
        actions: Registry,
        tensors: Mapping[str, Tensor] | None,
    ) -> None:
        self.plan = plan
        #: True until it has left the model
        self.attached = True
        self._status = RigStatus.ATTACHED
        self._actions = actions
        self._tensors = dict(tensors or {})
        self._recorder = Recorder(as_sinks(sinks), ranks.rank())
        view, optimizers = resolution.view, resolution.view.optimizers
        shared = ranks.world_size() > 1 and bool(optimizers)
        environment = Environment.for_model(model, optimizers, recorder=self._recorder, shared=shared)
        self._installer = Installer(environment, Registrations(view, environment.clock, next(_numbers)))
        self._sync = ModelSync(self._installer)
        self._finalizer = StepFinalizer(plan, self._installer, self._recorder, self._apply_schedule)
        #: the name of the optimizer whose steps are counted
        self._clock_name = clock
        self._steps: list[OptimizerStep] = []
        #: what the last restore or load found
        self.loaded: LoadReport | None = None
        events = RootEvents(
            self._begin_forward, self._end_forward, self._finalizer.backward_began, self._finalizer.no_optimizer_steps
        )
        graphs = self._installer.registrations.graphs
        self._root = RootHooks(self, model, environment.clock.passes, graphs, events)
        self._taps = Taps(model, environment.clock)
        with ExitStack() as undo:
            undo.callback(self.detach)
            # The clock's hooks come last, so that its step ends after every other optimizer's hooks have run.
            for name, one in sorted(optimizers.items(), key=lambda item: item[0] == clock):
                end = self._finalizer.optimizer_stepped if name == clock else None
                resolve_again = self._sync.resolve_again
                self._steps.append(OptimizerStep(name, one, self._installer, resolve_again=resolve_again, end=end))
            with gc_paused():
                for resolved in resolution:
                    self._installer.add(resolved)
                graphs.watch(self._installer.registrations)
                self._apply_schedule()
            undo.pop_all()
        self._recorder.write_sidecar(PLAN, partial(plan_json, plan))
        for flight in self._recorder.flights:
            flight.begin(partial(model_snapshot, weakref.ref(self._installer)))

    # -- what it says ------------------------------------------------------------------------------------------------

    @property
    def step_count(self) -> int:
        """Steps finished; a restored rig goes on counting where the saved one stood."""
        return self._clock.step

    @property
    def ledger(self) -> Ledger:
        return Ledger(self._installer.hooks, self._installer.registrations.graph_report)

    def values(self, id: str) -> dict[str, dict[str, Any]]:
        """A hook's numbers of the last step it was due in: {target: {name: number}}."""
        self._attached_hook(id)
        return last_values(self._recorder, id)

    def rows(self, id: str) -> list[Row]:
        """What a hook's action emitted in the last step, with call and leaf."""
        self._attached_hook(id)
        return list(self._recorder.last_emitted.get(id, ()))

    def captured(self, id: str) -> dict[str, Tensor | list[Tensor]]:
        """What `capture` kept in the last step it was due in: a tensor, or a list where it fired several times."""
        self._attached_hook(id)
        return {t: kept[0] if len(kept) == 1 else kept for t, kept in self._recorder.captured(id).items()}

    @property
    def reports(self) -> list[FlightReport]:
        """What its flight recorders have written."""
        return [report for flight in self._recorder.flights for report in flight.reports]

    def __repr__(self) -> str:
        state = f"{self.step_count} steps" if self.attached else "detached"
        sites = sum(map(len, self.ledger.values()))
        return f"<rig: {len(self.ledger)} hooks, {sites} sites, {state}>"

    def __str__(self) -> str:
        tables = rig_tables(self.ledger, self._recorder, steps=self.step_count, attached=self.attached)
        return "\n\n".join(table.text() for table in tables)

    def _repr_html_(self) -> str:
        tables = rig_tables(self.ledger, self._recorder, steps=self.step_count, attached=self.attached)
        return "".join(table.html() for table in tables)

    # -- changing it -------------------------------------------------------------------------------------------------

    def add(self, hook: Hook) -> None:
        """Parameter points act at once, gradients of modules and taps from the next forward on, modifiers of the
        forward at the root's next one."""
        self.revise(Plan([*self.plan, hook]))

    def remove(self, id: str) -> None:
        self._attached_hook(id)
        self.revise(Plan(hook for hook in self.plan if hook.id != id))

    def mute(self, id: str) -> None:
        self._attached_model()
        same_on_all_ranks("mute", id)
        self._attached_hook(id).mute()
        self._apply_schedule()

    def unmute(self, id: str) -> None:
        self._attached_model()
        same_on_all_ranks("unmute", id)
        self._attached_hook(id).unmute()
        self._apply_schedule()

    def revise(self, plan: Plan) -> None:
        """Swap plans by hook id. An unchanged hook stays as it is; one whose action is the same keeps its state."""
        model = self._attached_model()
        before = dict(self._installer.hooks)
        kept = {h.id: before[h.id] for h in plan if h.id in before and before[h.id].hook == h}
        fresh = tuple(h for h in plan if h.id not in kept)
        view = ModelView(model, self._installer.environment.model.optimizers())
        find = partial(resolve, fresh, view, actions=self._actions, tensors=self._tensors)
        found = {one.hook.id: one for one in resolve_on_all_ranks("revise", find)}
        for other in rigs_on(model):
            taken = {h.id for h in fresh}.intersection(other.ledger) if other is not self else set()
            if taken:
                raise AttachedError(
                    "a hook of this id is on the model already", hook=min(taken), remedy="give it another id"
                )
        self._installer.replace_all({h.id: kept.get(h.id) or found[h.id] for h in plan})
        for id in before.keys() - self._installer.hooks.keys():
            self._recorder.forget(id)
        self.plan = plan
        self._finalizer.set_plan(plan)
        self._recorder.write_sidecar(PLAN, partial(plan_json, plan))
        self._apply_schedule()

    def detach(self) -> None:
        """Remove all of it, and only it. A second call does nothing. A forward under way ends as it began."""
        if not self.attached:
            return
        if self._clock.passes.under_way and self._installer.schedule.modifiers:
            self._status = RigStatus.LEAVING
            return
        self._status, self.attached = RigStatus.DETACHED, False
        self._root.silent = True
        self._finalizer.close()
        self._recorder.write_sidecar(LEDGER, partial(ledger_json, self.ledger))
        self._recorder.close()
        self._installer.leave(self._taps)
        self._root.watch_end(False)
        if any(step.running for step in self._steps):
            # PyTorch is going through the optimizer's hooks: they fall silent now and leave at the next forward.
            for step in self._steps:
                step.silence()
        else:
            self._leave()

    def flush(self, timeout: float = 2.0) -> bool:
        """Wait until every sink has taken what was recorded so far; whether all have."""
        return self._recorder.catch_up(timeout)

    def _leave(self) -> None:
        for step in self._steps:
            step.remove()
        self._root.remove()

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for flight in self._recorder.flights if error is not None and not isinstance(error, SystemExit) else ():
            flight.fail(f"{type(error).__name__}: {error}")
        self.detach()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Say yourself what a step is; from the first use on, the optimizer no longer does."""
        self._finalizer.set_program_steps(True)
        yield
        self._finalizer.end_step()

    # -- what is kept of it ------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """The plan and all running state as plain tensors, copied: for torch.save, safetensors or DCP as they are.

        Every rank saves its own. Where ranks have different targets, all of them call it together.
        """
        environment, hooks = self._installer.environment, self._installer.hooks
        model = environment.model.root()
        if model is None:
            raise AttachedError("the model of this rig is gone", remedy="save before the model is dropped")
        if any(hook.resolved.owners for hook in hooks.values()):
            same_on_all_ranks("state_dict", "")
            gather_state(hooks.values())
        manual = self._finalizer.source is StepSource.PROGRAM
        clock = clock_as_saved(environment, optimizer=self._clock_name, manual=manual)
        return pack(self.plan, hooks, self._used_tensors(), clock, self._optimizer_names, self._size_limits(model))

    def load_state_dict(
        self, state: Mapping[str, Tensor], *, rename: Mapping[str, str] | None = None, strict: bool = True
    ) -> LoadReport:
        """Carry a saved state into this rig, by hook id and target. The plan stays; the report has every difference.

        `strict` raises MismatchError if state would be lost or missed, and loads nothing then.
        """
        model = self._attached_model()
        ranks.barrier("load_state_dict")
        self.loaded = report = LoadReport()
        saved = ranks.all_or_none(partial(read, state, self._size_limits(model)))
        if saved is None:
            report.found = False
            report.notes.append("the checkpoint holds no state of hooks: they stay as they are")
            warnings.warn(f"tenterhook: {report.notes[0]}", RuntimeWarning, stacklevel=2)
            return report
        here = {id: (hook.hook, hook.definition, hook.targets) for id, hook in self._installer.hooks.items()}
        kept = compare(saved, here, Renaming(rename), report, model)
        compare_hooks(saved, here, report)
        compare_clocks(saved, self._optimizer_names, self._clock_name, report)
        compare_tensors(saved, self._used_tensors(), partial(report.add, "tensor"))
        ranks.all_or_none(report.refuse if strict else lambda: None)
        self._take(saved, kept)
        return report

    def _take(self, saved: SavedState, kept: Mapping[str, HookSnapshot]) -> None:
        """Put what was compared in place."""
        model = self._attached_model()
        place_clock(saved.header.clock, self._installer.environment)
        self._finalizer.set_program_steps(saved.header.clock.manual)
        for id, hook in self._installer.hooks.items():
            if id in kept:
                place(kept[id], hook, model)
            else:
                hook.reset()
        self._apply_schedule()

    def _size_limits(self, model: nn.Module) -> SizeLimits:
        return SizeLimits(max((len(hook.sites) for hook in self._installer.hooks.values()), default=0), model)

    def _used_tensors(self) -> dict[str, Tensor]:
        return {name: self._tensors[name] for name in tensors_of(self._installer.hooks.values())}

    # -- as it runs --------------------------------------------------------------------------------------------------

    def _apply_schedule(self) -> None:
        """Bring everything that fires in line with which hooks are due."""
        installer = self._installer
        installer.apply_schedule()
        hooks = list(installer.hooks.values())
        for step in self._steps:
            step.set_hooks(hooks)
        self._taps.set_hooks([*hooks, *installer.retired])
        taps = any(hook.on_taps for hook in hooks)
        modifies = bool(installer.schedule.modifiers)
        self._root.watch_end(not self._steps or taps or modifies or installer.has_pending_changes)
        installer.registrations.graphs.update()

    def _begin_forward(self) -> bool:
        """Follow the model before a forward; return True if parts of it were found to be others."""
        if not self.attached:
            self._leave()
            return False
        installer, passes = self._installer, self._clock.passes
        graphs = installer.registrations.graphs
        if not graphs.is_watching:
            graphs.watch(installer.registrations)
        if private.infers_shapes() != installer.paused:
            installer.paused = not installer.paused
            self._apply_schedule()
        passes.under_way, passes.replayed = False, None
        if installer.has_pending_changes:
            self._apply_schedule()
        resolved = self._sync.resolved
        self._sync.begin_forward()
        passes.under_way = self._root.end_handle is not None
        return self._sync.resolved != resolved

    def _end_forward(self) -> None:
        if self._status is RigStatus.LEAVING:
            self.detach()

    def _begin_at(self, step: int) -> None:
        """Count on from there, as the script does that it was attached to in an optimizer's step."""
        self._clock.step = step
        for hook in self._installer.hooks.values():
            if hook.hook.point.side != "step":
                hook.counted = step  # what it waits for is over in this step
        self._apply_schedule()

    @property
    def _number(self) -> int:
        return self._installer.registrations.rig

    @property
    def _clock(self) -> StepClock:
        return self._installer.environment.clock

    @property
    def _optimizer_names(self) -> list[str]:
        return self._installer.environment.model.optimizer_names

    def _attached_model(self) -> nn.Module:
        model = self._installer.environment.model.root()
        if model is None or not self.attached:
            raise AttachedError("the rig is on no model any more", remedy="attach the plan again")
        return model

    def _attached_hook(self, id: str) -> AttachedHook:
        hook = self._installer.hooks.get(id)
        if hook is None:
            close = nearest(id, list(self._installer.hooks))
            nearby = f"the nearest is {close[0]!r}" if close else f"it has {', '.join(self.ledger) or 'none'}"
            raise AttachedError("no hook of this id is on the rig", hook=id, remedy=nearby)
        return hook


def rigs_on(model: nn.Module) -> list[Rig]:
    """Return the rigs attached to a model or to a part of it, in attach order."""
    owners = (root.owner for root in roots_on(model))
    found = {rig._number: rig for rig in owners if isinstance(rig, Rig) and rig.attached}
    return [found[number] for number in sorted(found)]
