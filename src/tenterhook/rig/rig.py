"""The rig: a plan, installed on a model."""

from __future__ import annotations

import gc
import itertools
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
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
from tenterhook.resolve.agreement import accord, accord_on
from tenterhook.resolve.model_view import Ground
from tenterhook.resolve.resolution import Claim, resolve
from tenterhook.rig.installer import Rigging
from tenterhook.rig.ledger import Ledger
from tenterhook.rig.points.taps import Taps
from tenterhook.rig.root_hooks import Root, rigs_on
from tenterhook.rig.run_files import accounts, scene, written
from tenterhook.rig.runtime.attached_hook import LiveHook
from tenterhook.rig.saved.format import Room, Saved, read
from tenterhook.rig.saved.load_report import Report
from tenterhook.rig.saved.loader import (
    Kept,
    compare,
    compare_clocks,
    compare_hooks,
    compare_tensors,
    place,
    place_clock,
)
from tenterhook.rig.saved.renaming import Renaming
from tenterhook.rig.saved.schema import SavedClock
from tenterhook.rig.saved.writer import pack, tensors_of
from tenterhook.rig.step.end_of_step import Ending
from tenterhook.rig.step.optimizer_step import Steps

_numbers = itertools.count()


@contextmanager
def uncollected() -> Iterator[None]:
    """A hundred thousand sites are made to stay; collecting garbage meanwhile only walks over them again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Rig:
    """Lives with the model until `detach()`, which leaves the model as if it had never been touched."""

    def __init__(
        self,
        model: nn.Module,
        plan: Plan,
        claims: Iterable[Claim],
        ground: Ground,
        *,
        clock: str | None,
        sinks: Sinks,
        actions: Registry,
        tensors: Mapping[str, Tensor] | None,
    ) -> None:
        self._number = next(_numbers)
        self.plan = plan
        self.attached = True
        #: detached inside a forward, at whose end it leaves
        self._leaving = False
        self._actions = actions
        self._tensors = dict(tensors or {})
        self._recorder = Recorder(as_sinks(sinks), ranks.rank())
        optimizers = ground.optimizers
        self._rigging = Rigging(model, optimizers, self._recorder, ground, self._number)
        self._clock = self._rigging.clock
        self._clock.shared = ranks.world_size() > 1 and bool(optimizers)
        self._ending = Ending(plan, self._rigging, self._recorder)
        #: the user says what a step is
        self._manual = False
        #: the backward whose end ends the step, where there is no optimizer
        self._backward_task = -1
        self._steps: list[Steps] = []
        #: names of the optimizers, and of the one whose steps are counted
        self._optimizers = list(optimizers)
        self._ticking = clock
        #: what the last restore or load found
        self.loaded: Report | None = None
        self._root = Root(self, model)
        self._taps = Taps(model, self._clock)
        with ExitStack() as undo:
            undo.callback(self.detach)
            # The clock's hooks come last, so that its step ends after every other optimizer's hooks have run.
            for name, one in sorted(optimizers.items(), key=lambda item: item[0] == clock):
                self._steps.append(Steps(name, one, self._rigging, end=self._stepped if name == clock else None))
            with uncollected():
                for claim in claims:
                    self._rigging.put(claim)
                self._rigging.watch_graphs()
                self._arm()
            undo.pop_all()
        self._recorder.write_sidecar(PLAN, partial(written, plan))
        for flight in self._recorder.flights:
            flight.begin(partial(scene, weakref.ref(self)))

    # -- what it says ------------------------------------------------------------------------------------------------

    @property
    def step_count(self) -> int:
        """Steps finished; a restored rig goes on counting where the saved one stood."""
        return self._clock.step

    @property
    def ledger(self) -> Ledger:
        return Ledger(self._rigging.lives, self._rigging.graphs)

    def values(self, id: str) -> dict[str, dict[str, Any]]:
        """A hook's numbers of the last step it was due in: {target: {name: number}}."""
        self._live(id)
        table = self._recorder.last.get(id)
        found = table.values() if table is not None else {}
        for row in self._recorder.last_emitted.get(id, ()):
            found.setdefault(row.target, {})[row.name] = row.value
        return found

    def rows(self, id: str) -> list[Row]:
        """What a hook's action emitted in the last step, with call and leaf."""
        self._live(id)
        return list(self._recorder.last_emitted.get(id, ()))

    def captured(self, id: str) -> dict[str, Tensor | list[Tensor]]:
        """What `capture` kept in the last step it was due in: a tensor, or a list where it fired several times."""
        self._live(id)
        return {t: kept[0] if len(kept) == 1 else kept for t, kept in self._recorder.captured(id).items()}

    def __repr__(self) -> str:
        state = f"{self.step_count} steps" if self.attached else "detached"
        sites = sum(map(len, self.ledger.values()))
        return f"<rig: {len(self.ledger)} hooks, {sites} sites, {state}>"

    def __str__(self) -> str:
        from tenterhook.rig.display import rig_text

        return rig_text(self)

    def _repr_html_(self) -> str:
        from tenterhook.rig.display import rig_html

        return rig_html(self)

    # -- changing it -------------------------------------------------------------------------------------------------

    def add(self, hook: Hook) -> None:
        """Parameter points act at once, gradients of modules and taps from the next forward on, modifiers of the
        forward at the root's next one."""
        self.revise(Plan([*self.plan, hook]))

    def remove(self, id: str) -> None:
        self._live(id)
        self.revise(Plan(hook for hook in self.plan if hook.id != id))

    def mute(self, id: str) -> None:
        self._attached_model()
        accord_on("mute", id)
        self._live(id).silence()
        self._arm()

    def unmute(self, id: str) -> None:
        self._attached_model()
        accord_on("unmute", id)
        self._live(id).unmute()
        self._arm()

    def revise(self, plan: Plan) -> None:
        """Swap plans by hook id. An unchanged hook stays as it is; one whose action is the same keeps its state."""
        model = self._attached_model()
        rigging, before = self._rigging, dict(self._rigging.lives)
        kept = {h.id for h in plan if h.id in before and before[h.id].hook == h}
        fresh = tuple(h for h in plan if h.id not in kept)
        ground = Ground(model, rigging.optimizers())
        find = partial(resolve, fresh, ground, actions=self._actions, tensors=self._tensors)
        claims = {claim.hook.id: claim for claim in accord("revise", find, ground)}
        for other in rigs_on(model):
            taken = {h.id for h in fresh}.intersection(other.ledger) if other is not self else set()
            if taken:
                raise AttachedError("a hook of this id is on the model already", hook=min(taken),
                                    remedy="give it another id")  # fmt: skip
        for id, live in before.items():
            if id not in kept:
                rigging.retire(live)
        rigging.lives.clear()
        for hook in plan:
            if hook.id in kept:
                rigging.lives[hook.id] = before[hook.id]
            else:
                rigging.put(claims[hook.id], before.get(hook.id))
        for id in before.keys() - rigging.lives.keys():
            self._recorder.forget(id)
        self.plan = plan
        self._ending = Ending(plan, rigging, self._recorder)
        self._recorder.write_sidecar(PLAN, partial(written, plan))
        rigging.order()
        self._arm()

    def detach(self) -> None:
        """Remove all of it, and only it. A second call does nothing. A forward under way ends as it began."""
        self._leaving = self._clock.in_forward and bool(self._rigging.modifiers)
        if self._leaving or not self.attached:
            return
        self.attached = False
        self._recorder.write_sidecar(LEDGER, partial(accounts, self.ledger))
        self._recorder.close()
        self._rigging.take_down(self._taps)
        self._root.watch_end(False)
        if any(steps.running for steps in self._steps):
            # PyTorch is going through the optimizer's hooks: they fall silent now and leave at the next forward.
            for steps in self._steps:
                steps.silence()
        else:
            self._leave()

    @property
    def reports(self) -> list[FlightReport]:
        """What its flight recorders have written."""
        return [report for flight in self._recorder.flights for report in flight.reports]

    def flush(self, timeout: float = 2.0) -> bool:
        """Wait until every sink has taken what was recorded so far; whether all have."""
        return self._recorder.catch_up(timeout)

    def _leave(self) -> None:
        for steps in self._steps:
            steps.remove()
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
        self._manual = True
        yield
        self._end_step()

    # -- what is kept of it ------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """The plan and all running state as plain tensors, copied: for torch.save, safetensors or DCP as they are.

        Every rank saves its own. Where ranks have different targets, all of them call it together.
        """
        model = self._rigging.model()
        if model is None:
            raise AttachedError("the model of this rig is gone", remedy="save before the model is dropped")
        if any(live.claim.owners for live in self._rigging.lives.values()):
            accord_on("state_dict", "")
            self._rigging.gather_state()
        clock, now = self._clock, self._clock.now
        saved = SavedClock(
            clock.step, clock.tripped, clock.accumulated, (clock.forwards[0], clock.forwards[1]),
            last=(now.step, now.index, now.training), optimizer=self._ticking, manual=self._manual,
        )  # fmt: skip
        return pack(self.plan, self._rigging.lives, self._used_tensors(), saved, self._optimizers, self._room(model))

    def load_state_dict(
        self, state: Mapping[str, Tensor], *, rename: Mapping[str, str] | None = None, strict: bool = True
    ) -> Report:
        """Carry a saved state into this rig, by hook id and target. The plan stays; the report has every difference.

        `strict` raises MismatchError if state would be lost or missed, and loads nothing then.
        """
        model = self._attached_model()
        ranks.barrier("load_state_dict")
        self.loaded = report = Report()
        saved = ranks.all_or_none(partial(read, state, self._room(model)))
        if saved is None:
            report.found = False
            report.notes.append("the checkpoint holds no state of hooks: they stay as they are")
            warnings.warn(f"tenterhook: {report.notes[0]}", RuntimeWarning, stacklevel=2)
            return report
        lives = self._rigging.lives
        here = {id: (live.hook, live.definition, live.targets) for id, live in lives.items()}
        kept = compare(saved, here, Renaming(rename), report, model)
        compare_hooks(saved, here, report)
        compare_clocks(saved, self._optimizers, self._ticking, report)
        compare_tensors(saved, self._used_tensors(), partial(report.add, "tensor"))
        ranks.all_or_none(report.refuse if strict else lambda: None)
        self._take(saved, kept)
        return report

    def _take(self, saved: Saved, kept: Mapping[str, Kept]) -> None:
        """Put what was compared in place."""
        model = self._attached_model()
        place_clock(saved.header.clock, self._clock)
        self._manual = saved.header.clock.manual
        for id, live in self._rigging.lives.items():
            if id in kept:
                place(kept[id], live, model)
            else:
                live.begin_anew()
        self._arm()

    def _room(self, model: nn.Module) -> Room:
        return Room(max((len(live.sites) for live in self._rigging.lives.values()), default=0), model)

    def _used_tensors(self) -> dict[str, Tensor]:
        return {name: self._tensors[name] for name in tensors_of(self._rigging.lives.values())}

    # -- as it runs --------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Which hooks are due has changed: tell everything that fires them."""
        rigging = self._rigging
        rigging.arm()
        lives = list(rigging.lives.values())
        for steps in self._steps:
            steps.serve(lives)
        self._taps.serve([*lives, *rigging.retired])
        taps = any(live.hook.point.on == ("tap",) for live in lives)
        self._root.watch_end(not self._steps or taps or bool(rigging.modifiers) or rigging.unsettled)
        rigging.tell_graphs()

    def _begin_forward(self) -> None:
        if not self.attached:
            self._leave()
            return
        rigging, clock = self._rigging, self._clock
        if not rigging.watched:
            rigging.watch_graphs()
        if private.infers_shapes() != rigging.blind:
            rigging.blind = not rigging.blind
            self._arm()
        clock.in_forward, clock.replayed = False, None
        if rigging.unsettled:
            self._arm()
        rigging.settle()
        clock.in_forward = self._root.watches_end

    def _begin_at(self, step: int) -> None:
        """Count on from there, as the script does that it was attached to in an optimizer's step."""
        self._clock.step = step
        for live in self._rigging.lives.values():
            if live.hook.point.side != "step":
                live.counted = step  # what it waits for is over in this step
        self._arm()

    def _stepped(self) -> None:
        if not self._manual:
            self._end_step()

    def _ended_without_optimizer(self) -> None:
        if not self._steps:
            self._stepped()

    def _end_step(self) -> None:
        if not self.attached:
            return
        self._ending()
        clock = self._clock
        change = self._rigging.next_change
        if self.attached and (clock.stale or (change is not None and clock.step >= change)):
            self._arm()

    def _attached_model(self) -> nn.Module:
        model = self._rigging.model()
        if model is None or not self.attached:
            raise AttachedError("the rig is on no model any more", remedy="attach the plan again")
        return model

    def _live(self, id: str) -> LiveHook:
        live = self._rigging.lives.get(id)
        if live is None:
            close = nearest(id, list(self._rigging.lives))
            raise AttachedError(
                "no hook of this id is on the rig", hook=id,
                remedy=f"the nearest is {close[0]!r}" if close else f"it has {', '.join(self.ledger) or 'none'}",
            )  # fmt: skip
        return live
