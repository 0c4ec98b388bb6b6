"""End a step: merge results across ranks, compute numbers from them, and look for triggers that tripped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial

import torch
from torch import Tensor

from tenterhook import ranks
from tenterhook import torch_internals as private
from tenterhook.errors import TenterhookError
from tenterhook.record import Recorder, StepTable
from tenterhook.resolve.sharding import GLOBAL_POINTS
from tenterhook.resolve.targets import device_of
from tenterhook.rig.installer import Installer
from tenterhook.rig.runtime.attached_hook import AttachedHook
from tenterhook.rig.runtime.hook_state import Partials
from tenterhook.rig.step.agreement import StepAgreement
from tenterhook.torch_internals import compiler as dynamo


class StepSource(Enum):
    """The kind of event that ends a step."""

    #: a step of the clock optimizer
    OPTIMIZER = auto()
    #: without an optimizer: the end of the root's backward pass, or of a forward pass whose output requires no gradient
    BACKWARD = auto()
    #: the end of a `with rig.step():` block in the program
    PROGRAM = auto()


def _nothing() -> None:
    """Do nothing after a step."""


class StepFinalizer:
    """An object that ends steps and calls `change_schedule` if different hooks are due in the next step."""

    def __init__(
        self, installer: Installer, recorder: Recorder, agreement: StepAgreement, change_schedule: Callable[[], None]
    ) -> None:
        #: called after each step
        self.after_step: Callable[[], None] = _nothing
        self._installer = installer
        self._recorder = recorder
        self._change_schedule = change_schedule
        self._agreement = agreement
        self._closed = False
        #: id of the backward pass that ends the step
        self._backward_task = -1
        self.source = self._own_source

    @property
    def _own_source(self) -> StepSource:
        """Return the event that ends a step if the program does not end steps itself."""
        return StepSource.OPTIMIZER if self._installer.environment.model.has_optimizers else StepSource.BACKWARD

    def set_program_steps(self, on: bool) -> None:
        """Set whether the program ends steps. If `on` is False, an optimizer step or a backward pass ends each step."""
        self.source = StepSource.PROGRAM if on else self._own_source

    def close(self) -> None:
        """Stop ending steps, because the rig is detached."""
        self._closed = True

    # -- events that end a step --------------------------------------------------------------------------------------

    def optimizer_stepped(self) -> None:
        """End the step after the clock optimizer's step.

        If each parameter has its own optimizer, which steps in the backward pass, the step ends with the backward pass.
        """
        if self.source is not StepSource.OPTIMIZER:
            return
        task = private.graph_task_id()
        if task == -1:
            self.end_step()
        elif task != self._backward_task:
            self._backward_task = task
            private.at_end_of_backward(self.end_step)

    def backward_began(self) -> None:
        """Let the step end with the current backward pass, unless an optimizer or the program ends steps."""
        if self._closed or self.source is not StepSource.BACKWARD:
            return
        if dynamo.in_compiled_autograd():
            ranks.warn_once(
                "tenterhook: compiled autograd does not tell when a backward pass ends, so no step of this rig ends\n"
                "  remedy: give attach the optimizer, or mark each step with rig.step()",
                first=self._installer.environment.group.first,
            )
        task = private.graph_task_id()
        if task != self._backward_task:  # a backward pass through several outputs is reported several times
            self._backward_task = task
            # This callback queues a second one, so that the step ends after all other callbacks of the backward pass.
            private.at_end_of_backward(lambda: private.at_end_of_backward(self.no_optimizer_steps))

    def no_optimizer_steps(self) -> None:
        """End the step after its forward or backward pass, unless an optimizer or the program ends steps."""
        if self.source is StepSource.BACKWARD:
            self.end_step()

    # -- the end of a step -------------------------------------------------------------------------------------------

    def end_step(self) -> None:
        """End the step: count it, merge and report the measured values, and install the hooks due in the next step."""
        if self._closed:
            return
        installer, environment, trips = self._installer, self._installer.environment, []
        clock = environment.clock
        for hook in installer.schedule.active:
            hook.count_due()
        if installer.schedule.merging:
            self._merge_over_ranks(installer.schedule.merging)
        if installer.schedule.ranging:
            self._agreement.exchange_skew()
        for hook in list(installer.hooks.values()):
            hook.state.commit()
            if hook.partials is not None and 1 in hook.partials.fired:
                trip = self._report_or_mute(hook, hook.partials)
                trips += [(hook, trip)] if trip is not None else []
        if installer.schedule.ranging:
            self._agreement.skew.end_step()
        self._recorder.errors.contain("recording the numbers of a step", self._recorder.flush, clock.step)
        if trips or self._recorder.judge is not None:
            self._recorder.errors.contain("looking for tripped triggers", self._look_for_trips, trips)
        clock.end_step()
        environment.gradients.accumulated = False
        change = installer.schedule.next_change
        if not self._closed and (environment.outdated or (change is not None and clock.step >= change)):
            self._change_schedule()
        self.after_step()

    @torch.no_grad()
    def _merge_over_ranks(self, hooks: Sequence[AttachedHook]) -> None:
        """Merge the partial results of observers across ranks in one collective.

        Either all ranks or no ranks must call this method.
        """
        model, parts = self._installer.environment.model.root(), [h.partials for h in hooks if h.partials is not None]
        if not parts or model is None:
            return
        device = device_of(model)
        given = [one.part(device) for one in parts]
        how = [{n: p.merge for n, p in one.declared.items()} | {"fired": "max"} for one in parts]
        self._agreement.begin()
        merged = ranks.merge(self._installer.environment.group, given, how)
        for one, whole in zip(parts, merged, strict=True):
            one.take_whole(whole)

    def _report_or_mute(self, hook: AttachedHook, partials: Partials) -> Tensor | None:
        """Report an observer's numbers. If tenterhook itself fails, mute the observer and let training go on.

        An observer that merges across ranks is not muted, because the other ranks would wait for this one.
        """
        try:
            fired = bytearray(partials.fired)
            return self._report(hook, fired, partials.take())
        except TenterhookError:
            raise  # the action failed, and the hook has on_error="raise"
        except BaseException as error:
            self._recorder.errors.add(f"computing the numbers of hook {hook.hook.id!r}", error)
            partials.clear()
            if not hook.resolved.merges:
                hook.mute()
                self._installer.environment.outdated.add(hook)
            return None

    @torch.no_grad()
    def _report(self, hook: AttachedHook, fired: bytearray, merged: dict[str, Tensor] | None) -> Tensor | None:
        """Compute a two-phase observer's numbers from its merged partial results.

        Return a mask of the targets at which the observer's trigger tripped, or None.
        """
        if merged is None:
            return None
        resolved, trip = hook.resolved, None
        if resolved.definition.across_ranks == "range":
            self._agreement.skew.measure(hook, merged)
            return None
        definition, device = resolved.definition, merged["fired"].device
        columns: Callable[[], dict[str, Tensor]] = partial(hook.call, merged, {})
        # If the number of columns is known, and the action has no state or trigger, compute the columns on first read.
        lazy = hook.width and definition.batched is not None and not definition.state and not definition.trigger
        if not lazy:
            try:
                made = dict(hook.call(merged, hook.state.pack(device)))
            except Exception as error:
                hook.fail(hook.sites[0], error)
                return None
            trip = made.pop("trip", None)
            hook.width, columns = len(made), lambda: made
        step = self._installer.environment.clock.step
        table = StepTable(step, hook.names, fired, columns, width=hook.width, device=device)
        self._recorder.add_table(resolved.hook.id, table, shared=resolved.merges or resolved.hook.at in GLOBAL_POINTS)
        return trip if definition.trigger else None

    def _look_for_trips(self, trips: list[tuple[AttachedHook, Tensor]]) -> None:
        """Record the step in which a trigger tripped, but only if a hook or a flight recorder is waiting for this."""
        environment, flights, judge = self._installer.environment, self._recorder.flights, self._recorder.judge
        if judge is not None and (reason := judge.trip()) is not None:
            environment.clock.tripped = environment.clock.step
            self._recorder.errors.contain("writing a flight report", self._recorder.trip, reason)
            return
        # All ranks must make the same decision, whether or not they have a flight recorder.
        awaited = (
            flights or environment.errors.shared or any(h.hook.when.after_trip for h in self._installer.hooks.values())
        )
        if trips and awaited and bool(torch.stack([t.any() for _, t in trips]).any()):
            environment.clock.tripped = environment.clock.step
            self._recorder.errors.contain("writing a flight report", self._recorder.trip, trip_reason(trips))


def trip_reason(trips: list[tuple[AttachedHook, Tensor]]) -> str:
    """Describe which trigger tripped, and at which target."""
    tripped = [(hook, hook.names[int(trip.nonzero()[0])]) for hook, trip in trips if bool(trip.any())]
    hook, target = tripped[0]
    return f"{hook.definition.name} {hook.hook.id!r} tripped at {target!r}"
