"""The end of a step: what ends it; then results are merged over ranks, made into numbers, and searched for trips."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial

import torch
from torch import Tensor

from tenterhook import ranks
from tenterhook import torch_internals as private
from tenterhook.errors import RanksError
from tenterhook.plan import Plan
from tenterhook.record import Recorder, StepTable
from tenterhook.resolve.agreement import digest_of
from tenterhook.resolve.sharding import GLOBAL_POINTS
from tenterhook.resolve.targets import device_of
from tenterhook.rig.installer import Installer
from tenterhook.rig.runtime.attached_hook import AttachedHook


class StepSource(Enum):
    """What ends a step."""

    #: the step of the optimizer that is the clock
    OPTIMIZER = auto()
    #: without an optimizer: the end of the root's backward, or of a forward without gradients
    BACKWARD = auto()
    #: the program: `with rig.step():`
    PROGRAM = auto()


class StepFinalizer:
    """Ends steps. `change_schedule` is called when other hooks are due in the next one."""

    def __init__(
        self, plan: Plan, installer: Installer, recorder: Recorder, change_schedule: Callable[[], None]
    ) -> None:
        self._installer = installer
        self._recorder = recorder
        self._change_schedule = change_schedule
        self._digest = digest_of(plan)
        self._closed = False
        #: the backward whose end ends the step
        self._backward_task = -1
        self.source = self._own_source

    @property
    def _own_source(self) -> StepSource:
        """Return what ends a step if the program does not."""
        return StepSource.OPTIMIZER if self._installer.environment.model.has_optimizers else StepSource.BACKWARD

    def set_plan(self, plan: Plan) -> None:
        self._digest = digest_of(plan)

    def set_program_steps(self, on: bool) -> None:
        """Let the program say what a step is, or no longer."""
        self.source = StepSource.PROGRAM if on else self._own_source

    def close(self) -> None:
        """End no more steps: the rig has left."""
        self._closed = True

    # -- what ends a step --------------------------------------------------------------------------------------------

    def optimizer_stepped(self) -> None:
        """The optimizer that is the clock has stepped."""
        if self.source is StepSource.OPTIMIZER:
            self.end_step()

    def backward_began(self) -> None:
        """The root's backward has begun: without an optimizer, the step ends when it does."""
        if self._closed or self.source is not StepSource.BACKWARD:
            return
        task = private.graph_task_id()
        if task != self._backward_task:  # several outputs, several forwards: one backward
            self._backward_task = task
            # Queued at the end again, so that it comes after whatever else waits for the end.
            private.at_end_of_backward(lambda: private.at_end_of_backward(self.no_optimizer_steps))

    def no_optimizer_steps(self) -> None:
        """The root's backward has ended, or a forward that has none: without an optimizer, so has the step."""
        if self.source is StepSource.BACKWARD:
            self.end_step()

    # -- what happens then -------------------------------------------------------------------------------------------

    def end_step(self) -> None:
        """End the step: count it, merge and report what was measured, decide which hooks are due in the next one."""
        if self._closed:
            return
        installer, environment, trips = self._installer, self._installer.environment, []
        clock = environment.clock
        for hook in installer.schedule.active:
            hook.count_due()
        if installer.schedule.merging:
            self._merge_over_ranks(installer.schedule.merging)
        for hook in list(installer.hooks.values()):
            hook.state.commit()
            if hook.partials is not None and 1 in hook.partials.fired:
                fired = bytearray(hook.partials.fired)
                trip = self._report(hook, fired, hook.partials.take())
                trips += [(hook, trip)] if trip is not None else []
        self._recorder.flush(clock.step)
        if trips:
            self._look_for_trips(trips)
        clock.end_step()
        environment.gradients.accumulated = False
        change = installer.schedule.next_change
        if not self._closed and (environment.outdated or (change is not None and clock.step >= change)):
            self._change_schedule()

    @torch.no_grad()
    def _merge_over_ranks(self, hooks: Sequence[AttachedHook]) -> None:
        """Merge over ranks what observers measured of parts, all of them at once. Each rank does, or none."""
        model, parts = self._installer.environment.model.root(), [h.partials for h in hooks if h.partials is not None]
        if not parts or model is None:
            return
        device = device_of(model)
        given = [one.part(device) for one in parts]
        how = [{n: p.merge for n, p in one.declared.items()} | {"fired": "max"} for one in parts]
        # The plan goes along: where ranks have come to have different ones, their numbers would be mixed up here.
        *merged, plans = ranks.merge([*given, {"plan": self._digest}], [*how, {"plan": "max"}])
        if not torch.equal(plans["plan"], self._digest):
            raise RanksError("the ranks have come to have different plans", remedy="change the plan on every rank")
        for one, whole in zip(parts, merged, strict=True):
            one.take_whole(whole)

    @torch.no_grad()
    def _report(self, hook: AttachedHook, fired: bytearray, merged: dict[str, Tensor] | None) -> Tensor | None:
        """Turn a two-phase observer's merged partial results into numbers; return where its trigger tripped."""
        if merged is None:
            return None
        resolved, trip = hook.resolved, None
        definition, device = resolved.definition, merged["fired"].device
        columns: Callable[[], dict[str, Tensor]] = partial(hook.call, merged, {})
        # Without state and trip its numbers may be made whenever somebody asks, once it is known how many they are.
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
        """Note the step in which a trigger tripped, if somebody waits for that."""
        environment, flights = self._installer.environment, self._recorder.flights
        # Ranks decide the same, whoever of them has a flight recorder.
        awaited = (
            flights or environment.errors.shared or any(h.hook.when.after_trip for h in self._installer.hooks.values())
        )
        if trips and awaited and bool(torch.stack([t.any() for _, t in trips]).any()):
            environment.clock.tripped = environment.clock.step
            for flight in flights:
                flight.trip(trip_reason(trips))


def trip_reason(trips: list[tuple[AttachedHook, Tensor]]) -> str:
    """Say which trigger tripped, and at which target."""
    tripped = [(hook, hook.names[int(trip.nonzero()[0])]) for hook, trip in trips if bool(trip.any())]
    hook, target = tripped[0]
    return f"{hook.definition.name} {hook.hook.id!r} tripped at {target!r}"
