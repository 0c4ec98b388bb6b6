"""Watch the steps of a training, and examine a step again if its numbers look wrong."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence

from torch import nn
from torch.optim import Optimizer

from tenterhook.record.containment import ContainedErrors
from tenterhook.resolve.targets import named_parameters, unwrapped
from tenterhook.rig.rerun.call_log import CallLog
from tenterhook.rig.rerun.second_run import run_again, why_not
from tenterhook.rig.rerun.step_watch import StepWatch
from tenterhook.verdict.case import Case, Parameter
from tenterhook.verdict.examination import Examination
from tenterhook.verdict.history import History, StepNumbers
from tenterhook.verdict.judge import judge
from tenterhook.verdict.loss_watch import LossWatch
from tenterhook.verdict.signals import LeapDetector, group_settings, measure
from tenterhook.verdict.verdicts import Verdict

#: what fails if a step cannot be examined
EXAMINING = "examining a step"
#: the weights are measured in one step in so many
WEIGHTS_EVERY = 8
#: largest number of steps that are examined
MAX_EXAMS = 8


class Examiner:
    """An object that watches the steps of a training.

    Args:
        model: The model.
        optimizers: The optimizers that train the model.
        first: The number of the next step.
    """

    def __init__(self, model: nn.Module, optimizers: Sequence[Optimizer], *, first: int = 0) -> None:
        self._model = weakref.ref(model, self._forget)
        self._optimizers = [weakref.ref(one) for one in optimizers]
        self.step = first
        held = {id(p) for one in optimizers for group in one.param_groups for p in group["params"]}
        named = named_parameters(unwrapped(model))
        self._parameters = [parameter for _, parameter in named if id(parameter) in held]
        self.history = History([name for name, parameter in named if id(parameter) in held])
        self.examinations: list[Examination] = []
        self._errors = ContainedErrors()
        self._log = CallLog(model, self._errors, self._next_pass)
        self._losses = LossWatch(self._passes)
        #: for each optimizer, because the losses before their steps differ, as in a GAN
        self._leaps: weakref.WeakKeyDictionary[Optimizer, LeapDetector] = weakref.WeakKeyDictionary()
        self._steps = StepWatch(optimizers, self._before, self._after)

    def close(self) -> None:
        """Stop watching."""
        if any(call.gradients for call in self._log.calls):
            self._next_pass()
        self._steps.remove()
        self._losses.close()
        self._log.remove()

    def _forget(self, model: object) -> None:
        """Forget the parameters of a model that was freed, so that their memory is freed too."""
        self._parameters = []

    def verdicts(self) -> list[Verdict]:
        """Return what went wrong so far, the cause first."""
        model = self._model()
        held = {id(parameter) for parameter in self._parameters}
        known = named_parameters(unwrapped(model)) if model is not None else []
        parameters = [Parameter(n, p.numel(), p.dim(), id(p) in held, p.requires_grad) for n, p in known]
        return judge(Case(self.history, self.examinations, parameters))

    def _passes(self) -> int:
        return sum(len(call.gradients) for call in self._log.calls)

    def _next_pass(self) -> None:
        """Examine a pass that no optimizer step followed: a part of an accumulated gradient, or a skipped step."""
        model = self._model()
        if model is not None and not self._is_examined():
            # Reading numbers from a device in every pass would slow the training down.
            gradients = [] if self._log.devices else measure(self._parameters).gradients
            gone = all(parameter.grad is None for parameter in self._parameters)
            if any(norm is not None and not math.isfinite(norm) for norm in gradients):
                self._examine(model, "a gradient is not finite")
            elif gone and self._is_half():
                self._examine(model, "the program skipped the step")
        self._log.clear()

    def _is_half(self) -> bool:
        """Return True if the loss of this step is probably multiplied by a loss scale."""
        return any(call.modes.is_half() for call in self._log.calls)

    def _is_examined(self) -> bool:
        """Return True if this step was examined, or if enough steps were."""
        return len(self.examinations) >= MAX_EXAMS or any(one.step == self.step for one in self.examinations)

    def _before(self, optimizer: Optimizer) -> None:
        self._errors.contain(EXAMINING, self._look, optimizer)

    def _look(self, optimizer: Optimizer) -> None:
        model = self._model()
        if model is None:
            return
        losses = self._losses.take()
        found = measure(
            self._parameters,
            losses=[] if self._is_half() else losses,  # they are multiplied by an unknown loss scale
            weights=self.step % WEIGHTS_EVERY == 0,
        )
        optimizers = [one for ref in self._optimizers if (one := ref()) is not None]
        numbers = StepNumbers(self.step, found.gradients, group_settings(optimizers), found.loss, found.weights)
        leaps = self._leaps.setdefault(optimizer, LeapDetector())
        reason = leaps.look({"the loss": numbers.loss, "the norm of all gradients": numbers.total})
        if self._counts(optimizer):
            self.history.add(numbers)
        if reason is not None and not self._is_examined():
            numbers.weights = numbers.weights or measure(self._parameters, weights=True).weights
            self._examine(model, reason)

    def _examine(self, model: nn.Module, reason: str) -> None:
        refusal, found = why_not(model, self._log), None
        if refusal is None:
            try:
                found = run_again(model, self._log)
            except Exception as error:
                refusal = f"running it again failed: {error!r}"
        self.examinations.append(Examination(self.step, reason, found, refusal))

    def _after(self, optimizer: Optimizer) -> None:
        self._errors.contain(EXAMINING, self._log.end_step)
        self.step += self._counts(optimizer)

    def _counts(self, optimizer: Optimizer) -> bool:
        """Return True if the steps of an optimizer are counted. Those of the last one are, as in a rig."""
        return self._optimizers[-1]() is optimizer
