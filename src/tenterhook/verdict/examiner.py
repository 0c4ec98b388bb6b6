"""Watch the steps of a training, and examine a step again if its numbers look wrong."""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from torch import Tensor, nn
from torch.optim import Optimizer

from tenterhook import ranks
from tenterhook.ranks import RankGroup
from tenterhook.record import VERDICTS, Recorder, Verdict, verdicts_json
from tenterhook.record.containment import ContainedErrors
from tenterhook.resolve.targets import is_sharded, named_parameters, unwrapped
from tenterhook.rig import Rig
from tenterhook.rig.rerun.call_log import CallLog
from tenterhook.rig.rerun.loss_watch import LossWatch
from tenterhook.rig.rerun.second_run import Rerun, run_again, why_not
from tenterhook.rig.rerun.step_watch import StepWatch
from tenterhook.switch import is_off
from tenterhook.verdict.across_ranks import examine_on_all_ranks, why_not_on_ranks
from tenterhook.verdict.alerts import Alert, Alerts
from tenterhook.verdict.case import Case, Examination, Parameter
from tenterhook.verdict.history import GroupSettings, History, StepNumbers
from tenterhook.verdict.judge import judge
from tenterhook.verdict.measurement import Measurement, WeightSamples, group_settings, measure
from tenterhook.verdict.signals import LeapDetector
from tenterhook.verdict.step_rows import record_step

#: when the numbers of a step are read from the device
Trip = Literal["now", "late"]
#: why a step is not examined if its numbers are read later
LATE = 'trip="late" reads the numbers of a step one step later'
#: what fails if a step cannot be examined
EXAMINING = "examining a step"
#: the weights are measured in one step in so many
WEIGHTS_EVERY = 8
#: the facts about the parameters, such as which of them are frozen, are noted in one step in so many
NOTED_EVERY = 32
#: largest number of steps that are examined
MAX_EXAMS = 8
#: largest number of skipped steps that run again
MAX_SKIPS = 16
#: the training is judged for an alert so many steps after an examination
JUDGED_AFTER = (0, 6)


def watch_training(
    rig: Rig, optimizers: Sequence[Optimizer], *, first: int = 0, alert: Alert | None = None, trip: Trip = "now"
) -> Examiner | None:
    """Watch the training of a rig's model, so that `rig.verdict()` can say what goes wrong.

    Args:
        rig: The rig.
        optimizers: The optimizers that train the model.
        first: The number of the next step.
        alert: Function that is called with each new verdict.
        trip: When the numbers of a step are read: "now", before the optimizer's step, or "late", in the next step.

    Returns:
        The examiner, or None if tenterhook is off.
    """
    model = rig._installer.environment.model.root()
    if model is None or is_off():
        return None
    group = _group_of(rig, model)
    if group is None and any(map(is_sharded, model.parameters())):
        return None
    recorder = weakref.ref(rig._recorder)
    record = partial(record_step, recorder)
    note = partial(_write_verdict, recorder) if rig._recorder.stores else None
    rig._recorder.judge = examiner = Examiner(
        model, optimizers, first=first, note=note, alert=alert, group=group, trip=trip, record=record
    )
    return examiner


def _write_verdict(recorder: weakref.ref[Recorder], verdict: Verdict) -> None:
    """Write a verdict into the run folders while the training runs. At the end, all verdicts replace it."""
    if (there := recorder()) is not None:
        there.write_sidecar(VERDICTS, lambda: verdicts_json([verdict]))


def _group_of(rig: Rig, model: nn.Module) -> RankGroup | None:
    """Return the ranks that train the same parameters, or None if there is one rank or the model is a pipeline stage.

    The examiner does not use the connections of the rig, because it does not take part in the rig's agreements.
    """
    if rig._group.is_alone:
        return None
    group = RankGroup(rig._group.members, patience=rig._group.patience)
    group.meet("flight")
    known = [(name, tuple(one.shape)) for name, one in named_parameters(unwrapped(model))]
    return group if ranks.all_equal(group, hashlib.sha256(repr(known).encode()).digest()) else None


@dataclass(frozen=True, slots=True)
class _MeasuredStep:
    """A step whose numbers are on their way to the host."""

    number: int
    #: True if the step of this optimizer ends a step of the training
    counts: bool
    settings: tuple[GroupSettings, ...]
    leaps: LeapDetector
    measurement: Measurement


class Examiner:
    """An object that watches the steps of a training.

    Args:
        model: The model.
        optimizers: The optimizers that train the model.
        first: The number of the next step.
        note: Function that writes a new verdict into the run folder, in a thread of its own.
        alert: Function of the user that is called with each new verdict, in a thread of its own.
        group: The ranks that train the same parameters in the same steps and examine a step together, or None.
        trip: When the numbers of a step are read: "now", before the optimizer's step, or "late", in the next step.
        record: Function that records the numbers of a step, with the names of the parameters.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        *,
        first: int = 0,
        note: Alert | None = None,
        alert: Alert | None = None,
        group: RankGroup | None = None,
        trip: Trip = "now",
        record: Callable[[Sequence[str], StepNumbers], None] | None = None,
    ) -> None:
        self._model = weakref.ref(model, self._forget)
        self._optimizers = [weakref.ref(one) for one in optimizers]
        self.step = first
        self._parameters: list[Tensor] = []
        #: for each optimizer, the ids of its parameters, and the places of those that belong to the model
        self._held: weakref.WeakKeyDictionary[Optimizer, tuple[list[int], list[int]]] = weakref.WeakKeyDictionary()
        #: the gradients that other optimizers have used in this step
        self._used: dict[int, float] = {}
        self._facts: list[Parameter] = []
        self._samples = WeightSamples()
        self.history = History([])
        for one in optimizers:
            self._places(one)
        self.examinations: list[Examination] = []
        #: the norm of all gradients before they were clipped, if all norms are the same; NaN if it is unknown
        self.unclipped: float | None = None
        self._group = group
        #: why the last step was examined
        self._reason: str | None = None
        self._trip = trip
        #: the last step, if its numbers are read one step later
        self._late: _MeasuredStep | None = None
        self._record = record
        #: what this rank found in an earlier pass of this step; the other ranks hear of it before the optimizer's step
        self._unshared: Rerun | None = None
        self._errors = ContainedErrors()
        self._log = CallLog(model, self._errors, self._next_pass)
        self._losses = LossWatch(self._passes, self._errors)
        #: for each optimizer, because the losses before their steps differ, as in a GAN
        self._leaps: weakref.WeakKeyDictionary[Optimizer, LeapDetector] = weakref.WeakKeyDictionary()
        self._steps = StepWatch(optimizers, self._before, self._after, self._errors)
        self._alerts = Alerts(note, alert, self.verdicts) if note or alert else None

    def close(self) -> None:
        """Stop watching."""
        if any(call.gradients for call in self._log.calls):
            self._errors.contain(EXAMINING, self._next_pass)
        self._errors.contain(EXAMINING, self._end_late_step)
        self._steps.remove()
        self._losses.close()
        self._log.remove()
        if self._group is not None:
            self._group.leave()
        if self._alerts is not None:
            self._alerts.look()
            self._alerts.close()

    def _forget(self, model: object) -> None:
        """Forget the parameters of a model that was freed, so that their memory is freed too."""
        self._errors.contain("forgetting a model", self._clear)

    def _clear(self) -> None:
        self._parameters = []
        self._samples = WeightSamples()
        self._held.clear()

    def _places(self, optimizer: Optimizer) -> list[int]:
        """Return the places of an optimizer's parameters. One that the program adds gets a new place."""
        held = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
        known, places = self._held.get(optimizer, ([], []))
        model = self._model()
        if held != known and model is not None:
            inside = {id(one): (name, one) for name, one in named_parameters(unwrapped(model))}
            trained = set(held)
            places = self._assign([named for one, named in inside.items() if one in trained], inside.keys())
            self._held[optimizer] = held, places
            self._note_parameters()
        return places

    def _assign(self, named: Sequence[tuple[str, Tensor]], inside: Set[int]) -> list[int]:
        """Assign places to parameters. One that replaces another of the same name takes its place."""
        known = {id(one): place for place, one in enumerate(self._parameters)}
        gone = {self.history.names[place]: place for one, place in known.items() if one not in inside}
        places = []
        for name, parameter in named:
            place = known.get(id(parameter), gone.get(name))
            if place is None:
                place = len(self._parameters)
                self._parameters.append(parameter)
                self.history.extend([name])
            self._parameters[place] = parameter
            places.append(place)
        return places

    def verdicts(self) -> list[Verdict]:
        """Return what went wrong so far, the cause first."""
        self._errors.contain(EXAMINING, self._end_late_step)
        self._note_parameters()
        return judge(Case(self.history, self.examinations, self._facts, self.unclipped))

    def _note_parameters(self) -> None:
        """Note facts about the parameters. The program may free the model before it ends."""
        if (model := self._model()) is not None:
            held = {id(parameter) for parameter in self._parameters}
            named = named_parameters(unwrapped(model))
            self._facts = [Parameter(n, p.numel(), p.dim(), id(p) in held, p.requires_grad) for n, p in named]

    def trip(self) -> str | None:
        """Return why the last step was examined, or None. The next call returns None."""
        reason, self._reason = self._reason, None
        return reason

    def _passes(self) -> int:
        return sum(len(call.gradients) for call in self._log.calls)

    def _next_pass(self) -> None:
        """Examine a pass that no optimizer step followed: a part of an accumulated gradient, or a skipped step."""
        model = self._model()
        self.history.end_pass()
        if model is not None and self._trip == "now" and not self._is_examined(self.step):
            # Reading numbers from a device in every pass would slow the training down.
            every = range(len(self._parameters))
            gradients = [] if self._log.devices else measure(self._parameters, every).read().gradients
            gone = not any(gradients) if gradients else all(one.grad is None for one in self._parameters)
            bad = any(norm is not None and not math.isfinite(norm) for norm in gradients)
            if self._is_half() and (bad or gone):
                self.history.skip(self.step, sure=gone)
                self._losses.forget()  # the scale changes, and these are losses of another batch
                self._examine_skip(model)
            elif bad:
                self._examine_pass(model)
        self._log.clear()

    def _examine_pass(self, model: nn.Module) -> None:
        """Examine the first pass of this step that has a bad gradient."""
        if self._group is None:
            self._examine(model, "a gradient is not finite")
        elif self._unshared is None and (why_not_on_ranks(model) or why_not(model, self._log)) is None:
            self._unshared = run_again(model, self._log)

    def _examine_skip(self, model: nn.Module) -> None:
        """Examine a step that the program skipped. A loss scale that is too large is not worth an examination."""
        if self._group is None and sum(self.history.skips.values()) <= MAX_SKIPS:
            self._weigh(self.step)
            self._examine(model, "the program skipped the step")
            origin = self.examinations[-1].origin
            too_large = origin is not None and origin.half and origin.value != "nan"
            if origin is None or (too_large and origin.source in ("backward", "gradient")):
                self.examinations.pop()

    def _is_half(self) -> bool:
        """Return True if the loss of this step is probably multiplied by a loss scale."""
        return any(call.modes.is_half() for call in self._log.calls)

    def _is_examined(self, step: int) -> bool:
        """Return True if a step was examined, or if enough steps were."""
        return len(self.examinations) >= MAX_EXAMS or any(one.step == step for one in self.examinations)

    def _before(self, optimizer: Optimizer) -> None:
        self._errors.contain(EXAMINING, self._look, optimizer)

    def _look(self, optimizer: Optimizer) -> None:
        model = self._model()
        if model is None:
            return
        self._losses.after_backward = None
        self._end_late_step()
        losses = self._losses.take(scaled=self._is_half())
        step = self._measure(optimizer, losses)
        if self._trip == "late":
            self._late = step
        else:
            self._take_in(step, partial(self._examine_now, model, losses))

    def _measure(self, optimizer: Optimizer, losses: Sequence[Tensor]) -> _MeasuredStep:
        """Measure a step. Nothing waits for the numbers yet."""
        places, counts = self._places(optimizer), self._counts(optimizer)
        measurement = measure(
            self._parameters,
            places,
            losses=losses,
            group=self._group,
            samples=self._samples if counts else None,
            weights=counts and (self.step % WEIGHTS_EVERY == 0 or _divides_by_zero(optimizer)),
        )
        settings = group_settings([one for ref in self._optimizers if (one := ref()) is not None])
        leaps = self._leaps.setdefault(optimizer, LeapDetector())
        return _MeasuredStep(self.step, counts, settings, leaps, measurement)

    def _end_late_step(self) -> None:
        """Take in the numbers of the step before, which have arrived by now."""
        if self._late is not None:
            step, self._late = self._late, None
            self._take_in(step, self._refuse_late)

    def _take_in(self, step: _MeasuredStep, examine: Callable[[StepNumbers, str], None]) -> None:
        """Remember the numbers of a step, and examine it if they look wrong."""
        found = step.measurement.read()
        numbers = StepNumbers(step.number, found.gradients, step.settings, found.loss, found.moved, found.weights)
        reason = self._leaps_of(step.leaps, numbers)
        self._used |= {place: norm for place, norm in enumerate(numbers.norms) if norm is not None}
        if step.counts:
            numbers = replace(numbers, norms=[self._used.get(place) for place in range(len(self._parameters))])
            self._used = {}
            self.history.add(numbers)
        if reason is not None and not self._is_examined(step.number):
            self._reason = reason
            examine(numbers, reason)
            self.examinations[-1] = replace(self.examinations[-1], numbers=numbers)
        elif step.counts and self.unclipped is None and self.history.is_constant():
            self._look_behind_clipping()
        self._unshared = None
        # What can fail on one rank alone comes after the examination, for which the other ranks would wait.
        if step.counts and self._record is not None:
            self._record(self.history.names, numbers)
        if step.counts and step.number % NOTED_EVERY == 0:
            self._note_parameters()
        if step.counts and self._alerts is not None:
            if any(step.number - one.step in JUDGED_AFTER for one in self.examinations):
                self._alerts.look()
            self._alerts.look_sometimes(step.number)

    def _examine_now(self, model: nn.Module, losses: Sequence[Tensor], numbers: StepNumbers, reason: str) -> None:
        if numbers.weights is None:
            numbers.weights = self._weigh(numbers.step)
        if self._group is not None:
            self._examine_together(
                self._group, model, reason, sum(map(float, losses)) / len(losses) if losses else None
            )
        else:
            self._examine(model, reason)

    def _weigh(self, step: int) -> list[float | None] | None:
        """Measure the norms of the weights before a step that is examined."""
        weights = measure(self._parameters, (), weights=True, group=self._group).read().weights
        self.history.weigh(step, weights or ())
        return weights

    def _refuse_late(self, numbers: StepNumbers, reason: str) -> None:
        self.examinations.append(Examination(numbers.step, reason, None, LATE))

    def _leaps_of(self, leaps: LeapDetector, numbers: StepNumbers) -> str | None:
        """Return why the step must be examined, or None."""
        bad = [at for at, one in enumerate(numbers.weights or ()) if one is not None and not math.isfinite(one)]
        reason = leaps.look({"the loss": numbers.loss, "the norm of all gradients": numbers.total})
        return reason or (f"the weight {self.history.names[bad[0]]!r} is not finite" if bad else None)

    def _look_behind_clipping(self) -> None:
        """Measure the gradients right after the next backward passes, before the program clips them."""
        self.unclipped = math.nan
        if self._trip == "now" and self._group is None and not self._is_half():
            self._losses.after_backward = partial(self._errors.contain, EXAMINING, self._measure_unclipped)

    def _measure_unclipped(self) -> None:
        norms = measure(self._parameters, range(len(self._parameters))).read().gradients
        self.unclipped = math.sqrt(sum(norm * norm for norm in norms if norm is not None))

    def _examine(self, model: nn.Module, reason: str) -> None:
        refusal, found = why_not(model, self._log), None
        if refusal is None:
            try:
                found = run_again(model, self._log)
            except Exception as error:
                refusal = f"running it again failed: {error!r}"
        self.examinations.append(Examination(self.step, reason, found, refusal))

    def _examine_together(self, group: RankGroup, model: nn.Module, reason: str, loss: float | None) -> None:
        known = self._unshared
        refusal = why_not_on_ranks(model) or (why_not(model, self._log) if known is None else None)
        run = (lambda: known) if known is not None else (lambda: run_again(model, self._log))
        self.examinations.append(examine_on_all_ranks(group, self.step, reason, refusal, run, loss))

    def _after(self, optimizer: Optimizer) -> None:
        self._errors.contain(EXAMINING, self._log.end_step)
        self.step += self._counts(optimizer)

    def _counts(self, optimizer: Optimizer) -> bool:
        """Return True if the steps of an optimizer are counted. Those of the last one are, as in a rig."""
        return self._optimizers[-1]() is optimizer


def _divides_by_zero(optimizer: Optimizer) -> bool:
    """Return True if the optimizer divides by the second moment without eps, which is zero without a gradient."""
    return any(group.get("eps") == 0.0 for group in optimizer.param_groups)
