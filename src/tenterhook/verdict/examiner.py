"""Watch the steps of a training, and examine a step again if its numbers look wrong."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from tenterhook.record.containment import ContainedErrors
from tenterhook.resolve.targets import parameter_name, unwrapped, walk
from tenterhook.torch_internals import compiler as dynamo
from tenterhook.verdict.case import Case, Parameter
from tenterhook.verdict.examination import Examination
from tenterhook.verdict.history import History, StepNumbers
from tenterhook.verdict.judge import judge
from tenterhook.verdict.loss_watch import LossWatch
from tenterhook.verdict.rerun.call_log import CallLog
from tenterhook.verdict.rerun.second_run import run_again, why_not
from tenterhook.verdict.signals import LeapDetector, gradient_norms, group_settings, norms
from tenterhook.verdict.verdicts import Verdict

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
        named = _named_parameters(unwrapped(model))
        self._parameters = [parameter for _, parameter in named if id(parameter) in held]
        self.history = History([name for name, parameter in named if id(parameter) in held])
        self.examinations: list[Examination] = []
        self._errors = ContainedErrors()
        self._log = CallLog(model, self._errors, self._next_pass)
        self._losses = LossWatch(self._passes)
        #: for each optimizer, because the losses before their steps differ, as in a GAN
        self._leaps: weakref.WeakKeyDictionary[Optimizer, LeapDetector] = weakref.WeakKeyDictionary()
        #: True while an optimizer steps; a step that calls super().step() runs its hooks twice
        self._steps = False
        self._handles: list[Any] = []
        for one in optimizers:
            self._handles += [one.register_step_pre_hook(self._before), one.register_step_post_hook(self._after)]

    def close(self) -> None:
        """Stop watching."""
        if any(call.gradients for call in self._log.calls):
            self._next_pass()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._losses.close()
        self._log.remove()

    def _forget(self, model: object) -> None:
        """Forget the parameters of a model that was freed, so that their memory is freed too."""
        self._parameters = []

    def verdicts(self) -> list[Verdict]:
        """Return what went wrong so far, the cause first."""
        model = self._model()
        held = {id(parameter) for parameter in self._parameters}
        known = _named_parameters(unwrapped(model)) if model is not None else []
        parameters = [Parameter(n, p.numel(), p.dim(), id(p) in held, p.requires_grad) for n, p in known]
        return judge(Case(self.history, self.examinations, parameters))

    def _passes(self) -> int:
        return sum(len(call.gradients) for call in self._log.calls)

    def _next_pass(self) -> None:
        """Examine a pass that no optimizer step followed: a part of an accumulated gradient, or a skipped step."""
        model = self._model()
        norms = gradient_norms(self._parameters)
        there = [norm for norm in norms if norm is not None]
        if model is not None and not self._is_examined():
            if not all(map(math.isfinite, there)):
                self.examinations.append(self._examine(model, "a gradient is not finite"))
            elif not there and any(call.modes.is_half() for call in self._log.calls):
                self.examinations.append(self._examine(model, "the program skipped the step"))
        self._log.clear()

    def _is_examined(self) -> bool:
        """Return True if this step was examined, or if enough steps were."""
        return len(self.examinations) >= MAX_EXAMS or any(one.step == self.step for one in self.examinations)

    @dynamo.breaks_graph
    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not self._steps:
            self._steps = True
            self._errors.contain("examining a step", self._look, optimizer)

    def _look(self, optimizer: Optimizer) -> None:
        model = self._model()
        if model is None:
            return
        optimizers = [one for ref in self._optimizers if (one := ref()) is not None]
        numbers = StepNumbers(
            self.step, gradient_norms(self._parameters), group_settings(optimizers), loss=self._losses.take()
        )
        if self.step % WEIGHTS_EVERY == 0:
            numbers.weights = norms([parameter.detach() for parameter in self._parameters])
        leaps = self._leaps.setdefault(optimizer, LeapDetector())
        reason = leaps.look({"the loss": numbers.loss, "the norm of all gradients": numbers.total})
        if self._counts(optimizer):
            self.history.add(numbers)
        if reason is not None and not self._is_examined():
            numbers.weights = numbers.weights or norms([parameter.detach() for parameter in self._parameters])
            self.examinations.append(self._examine(model, reason))

    def _examine(self, model: nn.Module, reason: str) -> Examination:
        refusal = why_not(model, self._log)
        if refusal is not None:
            return Examination(self.step, reason, None, refusal)
        try:
            return Examination(self.step, reason, run_again(model, self._log), None)
        except Exception as error:
            return Examination(self.step, reason, None, f"it failed: {error!r}")

    @dynamo.breaks_graph
    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._steps:
            self._steps = False
            self._errors.contain("examining a step", self._log.end_step)
            self.step += self._counts(optimizer)

    def _counts(self, optimizer: Optimizer) -> bool:
        """Return True if the steps of an optimizer are counted. Those of the first one are, as in a rig."""
        return self._optimizers[0]() is optimizer


def _named_parameters(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Return each parameter once, with its name, in the order of the modules."""
    found: dict[int, tuple[str, Tensor]] = {}
    for module_name, module in walk(model):
        for key, parameter in module.named_parameters(recurse=False):
            found.setdefault(id(parameter), (parameter_name(module_name, key), parameter))
    return list(found.values())
