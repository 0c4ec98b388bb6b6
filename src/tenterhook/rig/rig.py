"""Define the rig, which is a plan installed on a model."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from enum import Enum, auto
from functools import partial
from types import TracebackType
from typing import TypeVar

from torch import Tensor, nn

from tenterhook import ranks
from tenterhook.actions import BUILTIN, Registry
from tenterhook.audit import Auditor, Imbalance
from tenterhook.errors import AttachedError, RefusedError, UnknownHookError
from tenterhook.plan import Action, Hook, Plan
from tenterhook.ranks import RankGroup
from tenterhook.record import FlightReport, Recorder, Row, Sinks, Verdict, as_sinks
from tenterhook.resolve.agreement import resolve_on_all_ranks, same_on_all_ranks
from tenterhook.resolve.model_view import ModelView, sharing
from tenterhook.resolve.resolution import Resolution, resolve
from tenterhook.rig.audited_ledger import AuditedLedger
from tenterhook.rig.display import last_values, last_vectors, rig_html, rig_text, warn_of_nothing
from tenterhook.rig.files import RunFiles, model_snapshot
from tenterhook.rig.installer import Installer, gc_paused
from tenterhook.rig.ledger import Ledger
from tenterhook.rig.model_calls import ModelCalls
from tenterhook.rig.registrations import Registrations
from tenterhook.rig.root_hooks import RootEvents, roots_on
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
    read_on_all_ranks,
)
from tenterhook.rig.saved.renaming import Renaming
from tenterhook.rig.saved.writer import clock_as_saved, gather_state, pack, tensors_of
from tenterhook.rig.step.agreement import StepAgreement
from tenterhook.rig.step.end_of_step import StepFinalizer, StepSource
from tenterhook.rig.step.optimizer_step import OptimizerStep
from tenterhook.rig.step.program_step import ProgramStep

T = TypeVar("T")
_numbers = itertools.count()


class RigStatus(Enum):
    """The stages that a rig goes through from attaching to detaching."""

    ATTACHED = auto()
    #: `detach` was called during a forward pass that the rig modifies; the rig is removed when that pass ends
    LEAVING = auto()
    DETACHED = auto()


class Rig:
    """A plan that is installed on a model.

    `attach`, `watch`, `flight` and `restore` return a rig. Do not create a rig directly. The model keeps its rig alive,
    but a rig does not keep its model alive. `detach()` removes the rig's hooks from the model. A rig is also a context
    manager, which detaches the rig at the end of the block.

    Args:
        model: The model that the plan is installed on.
        plan: The plan.
        resolution: The plan, resolved against the model.
        group: The ranks that hold the model.
        clock: Name of the optimizer whose steps are counted, or None if there is no optimizer.
        sinks: Sinks for the recorded values.
        actions: The registry in which named actions are looked up.
        tensors: Tensor parameters of actions, by name.

    Attributes:
        plan (Plan): The currently installed plan.
        attached (bool): True until the rig is detached.
        loaded (LoadReport | None): The report of the last `restore` or `load_state_dict` call, or None.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Linear(2, 1)
        >>> with th.attach(model, th.Hook("out", on=".", at="output", do=th.stats())) as rig:
        ...     _ = model(torch.ones(1, 2)).sum().backward()
        >>> rig.ledger["out"].fired, rig.attached
        (1, False)
    """

    def __init__(
        self,
        model: nn.Module,
        plan: Plan,
        resolution: Resolution,
        *,
        group: RankGroup,
        clock: str | None,
        sinks: Sinks,
        actions: Registry,
        tensors: Mapping[str, Tensor] | None,
    ) -> None:
        self.plan = plan
        self._status = RigStatus.ATTACHED
        self._actions = actions
        self._tensors = dict(tensors or {})
        self._recorder = Recorder(as_sinks(sinks), ranks.rank(), first=group.first)
        view, optimizers = resolution.view, resolution.view.optimizers
        environment = Environment.for_model(model, optimizers, recorder=self._recorder, group=group)
        self._installer = Installer(environment, Registrations(view, environment.clock, next(_numbers)))
        found = environment.found
        self._agreement = StepAgreement(plan, self._installer, self._recorder)
        self._finalizer = StepFinalizer(self._installer, self._recorder, self._agreement, self._apply_schedule)
        #: the name of the optimizer whose steps are counted
        self._clock_name = clock
        self._steps: list[OptimizerStep] = []
        #: the report of the last `restore` or `load_state_dict` call
        self.loaded: LoadReport | None = None
        events = RootEvents(
            self._begin_forward, self._end_forward, self._finalizer.backward_began, self._finalizer.no_optimizer_steps
        )
        self._calls = ModelCalls(self, model, self._installer, events, self._apply_schedule, found, fsdp=view.fsdp2)
        self._finalizer.after_step = self._after_step
        self._files = RunFiles(self._installer, self._recorder)
        clocks = sharing(optimizers, clock)
        ledger = AuditedLedger(self._installer, self._calls.taps, self._calls.sync)
        self._auditor = Auditor(model, ledger, environment.model.optimizers, clocks, found, self._recorder.errors.add)
        with ExitStack() as undo:
            undo.callback(self.detach)
            # Register on the clock optimizer last, so that the step ends after every other optimizer's hooks have run.
            for name, one in sorted(optimizers.items(), key=lambda item: item[0] == clock):
                end = self._finalizer.optimizer_stepped if name in clocks else None
                self._steps.append(OptimizerStep(one, self._installer, self._calls.sync, self._agreement, end=end))
            with gc_paused():
                for resolved in resolution:
                    self._installer.add(resolved)
                self._installer.registrations.graphs.watch(self._installer.registrations)
                self._apply_schedule()
            self._auditor.begin()
            self._calls.listen()
            undo.pop_all()
        self._files.begin(plan)
        for flight in self._recorder.flights:
            flight.begin(partial(model_snapshot, weakref.ref(self._installer)))

    # -- results -----------------------------------------------------------------------------------------------------

    @property
    def attached(self) -> bool:
        """Return True until the rig is detached."""
        return self._status is not RigStatus.DETACHED

    @property
    def step_count(self) -> int:
        """Return the number of finished steps.

        A restored rig continues from the saved count.
        """
        return self._clock.step

    @property
    def ledger(self) -> Ledger:
        """Return the ledger, which counts how often each site was due, fired, was skipped or failed.

        Returns:
            A mapping from hook id to the hook's `Account`. The counts are always current.

        Example:
            >>> import torch
            >>> import tenterhook as th
            >>> model = torch.nn.Linear(2, 1)
            >>> rig = th.attach(model, th.Hook("out", on=".", at="output", do=th.stats()))
            >>> _ = model(torch.ones(1, 2))
            >>> rig.ledger["out"]["."].fired
            1
        """
        return Ledger(self._installer.hooks, self._installer.registrations.graph_report)

    def values(self, id: str) -> dict[str, dict[str, float]]:
        """Return the numbers that a hook measured in the last step in which it was due.

        Args:
            id: Id of the hook.

        Returns:
            The numbers by target and name: `{target: {name: number}}`. If the dict is empty, a warning says why.

        Raises:
            AttachedError: The rig has no hook with this id.

        Example:
            >>> import torch
            >>> import tenterhook as th
            >>> model = torch.nn.Linear(2, 2)
            >>> rig = th.attach(model, th.Hook("in", on=".", at="input", do=th.stats()))
            >>> model(torch.tensor([[3.0, 4.0]])).sum().backward()
            >>> rig.values("in")["."]["norm"]
            5.0
        """
        return self._explained(last_values(self._recorder, id), id, "values")

    def vectors(self, id: str) -> dict[str, dict[str, list[float]]]:
        """Return the lists of numbers that a hook measured in the last step in which it was due.

        Args:
            id: Id of the hook, for example of a `histogram` hook.

        Returns:
            The lists by target and name: `{target: {name: numbers}}`. If the dict is empty, a warning says why.

        Raises:
            AttachedError: The rig has no hook with this id.

        Example:
            >>> import torch
            >>> import tenterhook as th
            >>> model = torch.nn.Linear(2, 2)
            >>> rig = th.attach(model, th.Hook("sizes", on=".", at="input", do=th.histogram()))
            >>> model(torch.tensor([[3.0, 4.0]])).sum().backward()
            >>> sum(rig.vectors("sizes")["."]["bins"])
            2.0
        """
        return self._explained(last_vectors(self._recorder, id), id, "vectors")

    def rows(self, id: str) -> list[Row]:
        """Return the values that a hook's action last emitted with `ctx.emit`, each with its step, call and leaf.

        Args:
            id: Id of the hook.

        Returns:
            One `Row` for each value from the last finished step in which the action emitted values.

        Raises:
            AttachedError: The rig has no hook with this id.

        Example:
            >>> import torch
            >>> import tenterhook as th
            >>> def largest(x, ctx):
            ...     ctx.emit("largest", x.max())
            >>> model = torch.nn.Linear(2, 2)
            >>> rig = th.attach(model, th.Hook("max", on=".", at="input", do=largest))
            >>> model(torch.tensor([[3.0, 4.0]])).sum().backward()
            >>> [(row.target, row.name, row.value) for row in rig.rows("max")]
            [('.', 'largest', 4.0)]
        """
        self._attached_hook(id)
        return self._recorder.emitted(id)

    def captured(self, id: str) -> dict[str, list[Tensor]]:
        """Return the tensors that a `capture` hook captured in the last step in which it was due.

        Args:
            id: Id of the hook.

        Returns:
            The captured tensors of each target: one for each time the hook fired in the step.

        Raises:
            AttachedError: The rig has no hook with this id.
            RefusedError: The hook runs a built-in action that captures no tensors.

        Example:
            >>> import torch
            >>> import tenterhook as th
            >>> model = torch.nn.Linear(2, 2)
            >>> rig = th.attach(model, th.Hook("in", on=".", at="input", do=th.capture()))
            >>> model(torch.tensor([[3.0, 4.0]])).sum().backward()
            >>> rig.captured("in")
            {'.': [tensor([[3., 4.]])]}
        """
        definition = self._attached_hook(id).definition
        if definition is not BUILTIN.find("capture") and BUILTIN.find(definition.name) is definition:
            raise RefusedError(
                f"the action {definition.name!r} captures no tensors",
                hook=id,
                remedy=f'use do=th.capture(), or read rig.values("{id}")',
            )
        return self._explained(self._recorder.captured(id), id, "captured")

    def _explained(self, found: dict[str, T], id: str, method: str) -> dict[str, T]:
        """Return what a method found. If it found nothing, warn and say why, unless `TENTERHOOK=0` is set.

        Registered modifiers record numbers only in some steps, so they need no reason.
        """
        hook = self._attached_hook(id)
        seldom = isinstance(hook.hook.do, Action) and hook.definition.modifies and any(one.fired for one in hook.sites)
        if not (found or seldom or self._installer.off):
            warn_of_nothing(self.ledger[id], method, self.step_count, self._calls.taps.names())
        return found

    @property
    def reports(self) -> list[FlightReport]:
        """Return the reports that the rig's flight recorders have written.

        Returns:
            One report for each run folder that a flight recorder wrote. The list is empty if there is no flight
            recorder.
        """
        return [report for flight in self._recorder.flights for report in flight.reports]

    @property
    def verdicts(self) -> list[Verdict]:
        """Return what went wrong in the training so far, the cause first.

        Returns:
            The verdicts. The list is empty if nothing went wrong, or if nothing watches the training. `th.flight` and
            `tenterhook run` watch it.
        """
        return self._recorder.verdicts()

    def verdict(self) -> Verdict | None:
        """Return the cause of what went wrong in the training so far.

        Returns:
            The first of `verdicts`, or None if nothing went wrong. Print it to see the sentence and its evidence.

        Raises:
            RefusedError: Nothing watches the training.

        Example:
            >>> import tempfile
            >>> import torch
            >>> import tenterhook as th
            >>> model = torch.nn.Linear(2, 1)
            >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            >>> rig = th.flight(model, optimizer, tempfile.mkdtemp())
            >>> model(torch.tensor([[1.0, float("nan")]])).sum().backward()
            >>> optimizer.step()
            >>> rig.verdict().sentence.partition(".")[0]
            "Step 0: the program passed a NaN to the model, in the argument 'input'"
        """
        self._recorder.require_judge()
        return next(iter(self.verdicts), None)

    @property
    def imbalances(self) -> list[Imbalance]:
        """Return the differences between the ledger and the model that the auditor has found.

        Returns:
            One `Imbalance` for each hook and cause. The list is empty if every hook acted wherever it was due.
        """
        if not self.attached:
            return list(self._auditor.found)
        self._calls.sync.look()
        return self._auditor.findings()

    def __repr__(self) -> str:
        state = f"{self.step_count} steps" if self.attached else "detached"
        sites = sum(map(len, self.ledger.values()))
        return f"<rig: {len(self.ledger)} hooks, {sites} sites, {state}>"

    def __str__(self) -> str:
        return rig_text(self.ledger, self._recorder, self.imbalances, steps=self.step_count, attached=self.attached)

    def _repr_html_(self) -> str:
        return rig_html(self.ledger, self._recorder, self.imbalances, steps=self.step_count, attached=self.attached)

    # -- changes -----------------------------------------------------------------------------------------------------

    def add(self, hook: Hook) -> None:
        """Add a hook to the end of the plan.

        A hook on parameters takes effect immediately. A hook on module gradients or on taps takes effect in the next
        forward pass. A hook that modifies values in the forward pass takes effect in the root's next forward pass. In a
        distributed run, call this method on every rank.

        Args:
            hook: The hook.

        Raises:
            AttachedError: The id is already in use on this model, or the rig is detached.
            ResolveError: The hook does not fit the model. Nothing is changed.
            ActionError: The action is unknown or its parameters are invalid. Nothing is changed.

        Example:
            >>> import torch
            >>> import tenterhook as th
            >>> model = torch.nn.Linear(2, 2)
            >>> rig = th.watch(model)
            >>> rig.add(th.Hook("in", on=".", at="input", do=th.stats()))
            >>> list(rig.ledger)
            ['grads', 'outputs', 'in']
        """
        self._revise(Plan([*self.plan, hook]), "add")

    def remove(self, id: str) -> None:
        """Remove a hook from the plan and from the model.

        In a distributed run, call this method on every rank.

        Args:
            id: Id of the hook.

        Raises:
            AttachedError: The rig has no hook with this id, or the rig is detached.

        Example:
            >>> import torch
            >>> import tenterhook as th
            >>> model = torch.nn.Linear(2, 2)
            >>> rig = th.watch(model)
            >>> rig.remove("outputs")
            >>> list(rig.ledger)
            ['grads']
        """
        self._attached_hook(id)
        self._revise(Plan(hook for hook in self.plan if hook.id != id), "remove")

    def follow(self) -> None:
        """Look at the model now, and act on the parts that were added, replaced, removed, frozen or unfrozen.

        You need this only if the program changes the model and then trains it without calling it, for example with
        `model.loss(x)`. Otherwise, the next call of the model does it.

        Raises:
            AttachedError: The rig is detached.

        Example:
            >>> import torch
            >>> import tenterhook as th
            >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2))
            >>> rig = th.watch(model)
            >>> _ = model.append(torch.nn.Linear(2, 1))
            >>> rig.follow()
            >>> list(rig.ledger["grads"])
            ['0.weight', '0.bias', '1.weight', '1.bias']
        """
        self._current_model()
        self._calls.sync.follow()

    def mute(self, id: str) -> None:
        """Disable a hook until `unmute` is called. The hook keeps its state and its counts.

        If the hook modifies a forward pass that is running, it continues to fire until that pass ends. In a distributed
        run, call this method on every rank.

        Args:
            id: Id of the hook.

        Raises:
            AttachedError: The rig has no hook with this id, or the rig is detached.

        Example:
            >>> import torch
            >>> import tenterhook as th
            >>> model = torch.nn.Linear(2, 2)
            >>> rig = th.watch(model)
            >>> rig.mute("grads")
            >>> rig.ledger["grads"].state
            'muted'
        """
        self._current_model()
        same_on_all_ranks(self._group, "mute", id)
        self._attached_hook(id).mute()
        self._apply_schedule()

    def unmute(self, id: str) -> None:
        """Enable a muted hook again, including sites that were muted because their action raised an error.

        In a distributed run, call this method on every rank.

        Args:
            id: Id of the hook.

        Raises:
            AttachedError: The rig has no hook with this id, or the rig is detached.

        Example:
            >>> import torch
            >>> import tenterhook as th
            >>> model = torch.nn.Linear(2, 2)
            >>> rig = th.watch(model)
            >>> rig.mute("grads")
            >>> rig.unmute("grads")
            >>> rig.ledger["grads"].state
            'installed'
        """
        self._current_model()
        same_on_all_ranks(self._group, "unmute", id)
        self._attached_hook(id).unmute()
        self._apply_schedule()

    def revise(self, plan: Plan) -> None:
        """Replace the plan.

        Hooks are matched by id. An unchanged hook is left as it is. A changed hook keeps its state if its action is
        unchanged. In a distributed run, call this method on every rank.

        Args:
            plan: The new plan.

        Raises:
            AttachedError: Another rig on this model uses one of the ids, or this rig is detached.
            ResolveError: The new plan does not fit the model. Nothing is changed.
            ActionError: An action is unknown or its parameters are invalid. Nothing is changed.

        Example:
            >>> import torch
            >>> import tenterhook as th
            >>> model = torch.nn.Linear(2, 2)
            >>> rig = th.watch(model)
            >>> rig.revise(th.Plan([th.Hook("in", on=".", at="input", do=th.stats())]))
            >>> list(rig.ledger)
            ['in']
        """
        self._revise(plan, "revise")

    def _revise(self, plan: Plan, call: str) -> None:
        """Replace the plan. `call` is the public method that an error names."""
        model = self._current_model()
        before = dict(self._installer.hooks)
        kept = {h.id: before[h.id] for h in plan if h.id in before and before[h.id].hook == h}
        fresh = tuple(h for h in plan if h.id not in kept)
        self._group.meet(call)
        view = ModelView(model, self._installer.environment.model.optimizers(), ranks=self._group.size)
        find = partial(resolve, fresh, view, actions=self._actions, tensors=self._tensors)
        found = {one.hook.id: one for one in resolve_on_all_ranks(self._group, call, find)}
        for other in rigs_on(model):
            taken = {h.id for h in fresh}.intersection(other.ledger) if other is not self else set()
            if taken:
                raise AttachedError(
                    "the model already has a hook with this id", hook=min(taken), remedy="use a different id"
                )
        self._installer.replace_all({h.id: kept.get(h.id) or found[h.id] for h in plan})
        for id in before.keys() - self._installer.hooks.keys():
            self._recorder.forget(id)
        for id in before.keys() - kept.keys():
            self._auditor.forget(id)
        self.plan = plan
        self._agreement.set_plan(plan)
        self._files.write_plan(plan)
        self._apply_schedule()

    def detach(self) -> None:
        """Remove the rig's hooks from the model and its optimizers, and close the sinks.

        Hooks registered by other code are not removed. A second call does nothing. If the rig modifies a forward pass
        that is running, the rig is detached when that pass ends.

        Example:
            >>> import torch
            >>> import tenterhook as th
            >>> model = torch.nn.Linear(2, 2)
            >>> rig = th.watch(model)
            >>> rig.detach()
            >>> len(th.inventory(model))
            0
        """
        if not self.attached:
            return
        if self._installer.forward_is_running and self._installer.schedule.modifiers:
            self._status = RigStatus.LEAVING
            return
        self._calls.sync.follow()  # a pass may have run after the model changed
        self._auditor.close()
        self._status = RigStatus.DETACHED
        self._group.leave()
        self._calls.close()
        self._finalizer.close()
        self._installer.leave(self._calls.taps)
        self._calls.root.watch_end(False)
        if any(step.running for step in self._steps):
            # PyTorch is iterating over the optimizer's hooks. Disable them now. The next forward pass removes them.
            for step in self._steps:
                step.silence()
        else:
            self._leave()
        self._files.close(self.ledger)
        self._recorder.errors.contain("closing the sinks", self._recorder.close)

    def flush(self, timeout: float = 2.0) -> bool:
        """Wait until every sink has received the values recorded so far.

        Args:
            timeout: Maximum time to wait, in seconds.

        Returns:
            True if every sink received all values within the timeout.

        Example:
            >>> import torch
            >>> import tenterhook as th
            >>> seen = []
            >>> model = torch.nn.Linear(2, 2)
            >>> rig = th.watch(model, sinks=lambda values, step: seen.append(step))
            >>> model(torch.ones(1, 2)).sum().backward()
            >>> rig.flush(), seen
            (True, [0])
        """
        return bool(self._recorder.errors.contain("waiting for the sinks", self._recorder.catch_up, timeout))

    def _leave(self) -> None:
        for step in self._steps:
            step.remove()
        self._auditor.remove()
        self._calls.root.remove()

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is not None and not isinstance(error, SystemExit):
            reason = f"{type(error).__name__}: {error}".removesuffix(": ")
            self._recorder.errors.contain("writing a flight report", self._recorder.fail, reason)
        self.detach()

    def step(self) -> ProgramStep:
        """Mark one step of a custom training loop. The step ends when the block ends without an error.

        After the first use, only `with rig.step():` blocks end steps; optimizer steps and backward passes no longer do.

        Returns:
            A context manager for the step.

        Example:
            >>> import torch
            >>> import tenterhook as th
            >>> model = torch.nn.Linear(2, 2)
            >>> rig = th.watch(model)
            >>> with rig.step():
            ...     model(torch.ones(1, 2)).sum().backward()
            ...     model(torch.ones(1, 2)).sum().backward()
            >>> rig.step_count
            1
        """
        return ProgramStep(self._finalizer)

    # -- saved state -------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """Return the plan and the current state of its hooks as plain tensors.

        The tensors are copies. You can save them with `torch.save`, safetensors or distributed checkpointing (DCP).
        Every rank saves its own state. If the ranks have different targets, every rank must call this method.

        Returns:
            The tensors by key. Every key begins with `tenterhook/`.

        Raises:
            AttachedError: The model no longer exists.
            StateError: The plan contains a function without a registered name, or the state cannot be saved.

        Example:
            >>> import torch
            >>> import tenterhook as th
            >>> model = torch.nn.Linear(2, 2)
            >>> rig = th.watch(model)
            >>> sorted(rig.state_dict())[0]
            'tenterhook/rank0/header'
        """
        environment, hooks = self._installer.environment, self._installer.hooks
        model = environment.model.root()
        if model is None:
            raise AttachedError("the rig's model no longer exists", remedy="save before you delete the model")
        if any(hook.resolved.owners for hook in hooks.values()):
            same_on_all_ranks(self._group, "state_dict", "")
            gather_state(self._group, hooks.values())
        manual = self._finalizer.source is StepSource.PROGRAM
        clock = clock_as_saved(environment, optimizer=self._clock_name, manual=manual)
        tensors, limits = self._used_tensors(), self._size_limits(model)
        return pack(self.plan, hooks, tensors, clock, self._optimizer_names, limits, self._group)

    def load_state_dict(
        self, state: Mapping[str, Tensor], *, rename: Mapping[str, str] | None = None, strict: bool = True
    ) -> LoadReport:
        """Load a saved state into this rig.

        State is matched by hook id and target name. The rig keeps its own plan. To attach the saved plan, use
        `restore`. In a distributed run, call this method on every rank.

        Args:
            state: A state from `state_dict()`. Other keys in the mapping are ignored.
            rename: Rules that map saved names to names on this model, such as `{"encoder": "backbone"}`.
            strict: If True, raise an error if saved state would be lost or a hook would have no state. If False, load
                only the state that fits.

        Returns:
            A report of every difference between the saved state and this rig. The report is falsy if there are no
            differences.

        Raises:
            MismatchError: The state does not fit this rig, and `strict` is True. Nothing is loaded.
            StateError: The state is damaged or cannot be read, or the ranks have states of different steps.
            PlanError: A rule in `rename` is malformed.
            AttachedError: The rig is detached.

        Example:
            >>> import torch
            >>> import tenterhook as th
            >>> model, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
            >>> saved = th.watch(model).state_dict()
            >>> rig = th.watch(other)
            >>> print(rig.load_state_dict(saved))
            all of the state was loaded
        """
        model = self._current_model()
        self._group.meet("load_state_dict")
        self.loaded = report = LoadReport()
        saved = read_on_all_ranks(self._group, partial(read, state, self._size_limits(model), self._group.position))
        if saved is None:
            report.found = False
            report.notes.append(
                "the checkpoint holds no hook state, so nothing was loaded; pass what rig.state_dict() returned"
            )
            ranks.warn_once(f"tenterhook: {report.notes[0]}", first=self._group.first)
            return report
        here = {id: (hook.hook, hook.definition, hook.targets) for id, hook in self._installer.hooks.items()}
        kept = compare(saved, here, Renaming(rename), report, model, self._group)
        compare_hooks(saved, here, report)
        compare_clocks(saved, self._optimizer_names, self._clock_name, report)
        compare_tensors(saved, self._used_tensors(), partial(report.add, "tensor"))
        ranks.all_or_none(self._group, report.refuse if strict else lambda: None)
        self._take(saved, kept)
        return report

    def _take(self, saved: SavedState, kept: Mapping[str, HookSnapshot]) -> None:
        """Load the state of the hooks in `kept`, and reset all other hooks."""
        model = self._current_model()
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
        hooks = self._installer.hooks.values()
        carried = {n: t for h in hooks if isinstance(h.hook.do, Action) for n, t in h.hook.do.tensors.items()}
        available = {**carried, **self._tensors}
        return {name: available[name] for name in tensors_of(hooks)}

    # -- events ------------------------------------------------------------------------------------------------------

    def _apply_schedule(self) -> None:
        """Install the hooks that are due and suspend the others, including hooks at step points and on taps."""
        installer = self._installer
        installer.apply_schedule()
        hooks = list(installer.hooks.values())
        for step in self._steps:
            step.set_hooks(hooks)
        self._calls.set_hooks(hooks)
        installer.registrations.graphs.update()

    def _after_step(self) -> None:
        if self.attached:
            self._calls.end_step()
            self._files.end_step()
        if not self._steps:
            self._auditor.end_step()

    def _begin_forward(self) -> bool:
        """Update the registrations before a forward pass. Return True if parts of the model were replaced."""
        if not self.attached:
            self._leave()
            return False
        return self._calls.begin_forward()

    def _end_forward(self) -> None:
        self._calls.sync.account()
        if self._status is RigStatus.LEAVING:
            self.detach()

    def _begin_at(self, step: int, *, forward_is_over: bool) -> None:
        """Set the current step to `step`, because the rig was attached during a step of a running script."""
        self._clock.step = step
        for hook in self._installer.hooks.values():
            if forward_is_over and hook.hook.point.side != "step":
                hook.counted = step  # the forward and backward passes are over, so the hook is not due in this step
        self._apply_schedule()

    @property
    def _number(self) -> int:
        return self._installer.registrations.rig

    @property
    def _group(self) -> RankGroup:
        return self._installer.environment.group

    @property
    def _clock(self) -> StepClock:
        return self._installer.environment.clock

    @property
    def _optimizer_names(self) -> list[str]:
        return self._installer.environment.model.optimizer_names

    def _current_model(self) -> nn.Module:
        """Return the model, and follow its changes before a method changes which hooks must act."""
        model = self._installer.environment.model.root()
        if not self.attached:
            raise AttachedError("the rig was detached", remedy="attach the plan again")
        if model is None:
            raise AttachedError("the model of the rig was freed", remedy="keep a reference to the model")
        self._calls.sync.look()
        return model

    def _attached_hook(self, id: str) -> AttachedHook:
        if (hook := self._installer.hooks.get(id)) is None:
            raise UnknownHookError.among(id, self._installer.hooks, "rig")
        return hook


def rigs_on(model: nn.Module) -> list[Rig]:
    """Return the rigs that are attached to a model or to a part of it, in the order in which they were attached."""
    owners = (root.owner for root in roots_on(model))
    found = {rig._number: rig for rig in owners if isinstance(rig, Rig) and rig.attached}
    return [found[number] for number in sorted(found)]
