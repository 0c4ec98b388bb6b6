"""Audit a rig: every step, and more thoroughly in some steps and when the rig is detached."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from tenterhook import torch_internals as private
from tenterhook.audit import every_step
from tenterhook.audit.arrival_audit import ArrivalAudit
from tenterhook.audit.call_audit import CallAudit
from tenterhook.audit.capture_audit import CaptureAudit
from tenterhook.audit.imbalance import Imbalance, Imbalances, Key, key_of
from tenterhook.audit.ledger_data import LedgerData
from tenterhook.audit.registration_audit import audit_registrations, is_certain
from tenterhook.audit.step_audit import StepAudit
from tenterhook.audit.value_audit import ValueAudit

P = ParamSpec("P")

#: the thorough audit runs after these steps, and after every 64th one
EARLY = frozenset((1, 2, 4, 8, 16, 32))
INTERVAL = 64


def is_sampled(step: int) -> bool:
    """Return True if the thorough audit runs after this number of steps."""
    return step in EARLY or (step > 0 and step % INTERVAL == 0)


def _contained(audit: Callable[Concatenate[Auditor, P], None]) -> Callable[Concatenate[Auditor, P], None]:
    """Let training go on if an audit fails."""

    @wraps(audit)
    def contained(self: Auditor, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            audit(self, *args, **kwargs)
        except Warning:
            raise  # the program turns warnings into errors
        except Exception as error:
            self._on_error("auditing the hooks", error)

    return contained


class Auditor:
    """An object that compares a rig's ledger with the model, and reports each difference once.

    Args:
        model: The model.
        ledger: The ledger of the rig.
        given: Function that returns the optimizers that were given to `attach` and still exist, by name.
        clocks: The names of the optimizers whose steps are counted.
        found: Receives the differences.
        on_error: Receives the errors of the audit itself.
    """

    def __init__(
        self,
        model: nn.Module,
        ledger: LedgerData,
        given: Callable[[], Mapping[str, Optimizer]],
        clocks: Collection[str],
        found: Imbalances,
        on_error: Callable[[str, BaseException], None],
    ) -> None:
        self._model = weakref.ref(model)
        self._ledger = ledger
        self._given = given
        self._clocks = clocks
        self.found = found
        self._on_error = on_error
        self._steps = StepAudit(model, ledger, self._optimizers)
        self._arrivals = ArrivalAudit(model, ledger)
        self._calls = CallAudit(model, ledger)
        self._values = ValueAudit(model, ledger)
        self._captures = CaptureAudit(ledger, found)
        #: number of steps of optimizers that train the model
        self._count = 0
        #: differences that were seen in a look, and the number of steps before it; the program may just have changed
        #: the model, so they are reported if they are still there after another step
        self._suspected: dict[tuple[Key, str | None], int] = {}
        #: the optimizer whose step is running, if its hooks can be checked before it changes the parameters
        self._stepping: weakref.ref[Optimizer] | None = None
        self._trains: weakref.WeakKeyDictionary[Optimizer, bool] = weakref.WeakKeyDictionary()
        #: the parameters that the model has or had, by id
        self._parameters: dict[int, private.TensorMark] = {}
        self._handles: list[RemovableHandle] = []

    def _optimizers(self) -> list[Optimizer]:
        return list(self._given().values())

    def begin(self) -> None:
        """Begin to audit. The rig has registered its hooks, so those of the auditor run after them."""
        self._handles = [one.register_step_pre_hook(self._gradients_handled) for one in self._optimizers()]
        self._note_parameters()
        self._mark()
        self._values.begin()
        self._captures.begin()
        every_step.watch(self)

    def forget(self, hook: str) -> None:
        """Forget what was found about a hook, because it was changed."""
        self.found.forget(hook)

    def close(self) -> None:
        """Look once more, and stop."""
        self.look()
        self._captures.close()
        every_step.unwatch(self)
        self._stepping = None

    def remove(self) -> None:
        """Remove the hooks from the optimizers. Do not call this while PyTorch iterates over the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def findings(self) -> list[Imbalance]:
        """Look now, and return all differences that were found so far, and hooks that have been idle so far."""
        self.look()
        known = {one.hook for one in self.found}
        return [*self.found, *(one for one in self._calls.idle() if one.hook not in known)]

    # -- every step --------------------------------------------------------------------------------------------------

    @_contained
    def before_step(self, optimizer: Optimizer, *, closure: bool) -> None:
        """Check the gradients that an optimizer is about to use."""
        if not self._is_mine(optimizer):
            return
        given = any(optimizer is one for one in self._optimizers())
        if is_sampled(self._count + 1) and not closure and private.graph_task_id() == -1:
            self.found.add(list(self._arrivals.missed()))
            if self._count:  # the rig may have been attached in the middle of the first step
                self.found.add(list(self._calls.missed(self._arrivals.has_arrived)))
        self._steps.begin(optimizer)
        late = closure or (not given and self._is_wrapper(optimizer))
        self._stepping = None if late else weakref.ref(optimizer)
        if not late and not given:
            self.found.add([*self._steps.unhandled(optimizer, "grad_final", "update"), *self._uncounted(optimizer)])

    @_contained
    def _gradients_handled(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._stepping is not None and self._stepping() is optimizer:
            self.found.add(self._steps.unhandled(optimizer, "grad_final"))

    @_contained
    def after_step(self, optimizer: Optimizer) -> None:
        """Check what an optimizer has changed."""
        if not self._is_mine(optimizer):
            return
        late, self._stepping = self._stepping is None, None
        self.found.add(self._steps.unhandled(optimizer, *(("grad_final", "update") if late else ("update",))))
        self._values.stepped(optimizer)
        self.end_step()

    @_contained
    def end_step(self) -> None:
        """Count a step, and audit thoroughly after some of them. A rig without optimizers calls this itself."""
        self._count += 1
        if is_sampled(self._count) or self._suspected:
            self.look()
        if is_sampled(self._count + 1):
            self._mark()

    def _mark(self) -> None:
        self._arrivals.mark()
        self._calls.mark()

    def _is_mine(self, optimizer: Optimizer) -> bool:
        """Return True if an optimizer trains a parameter of the model, or one that was replaced since."""
        known = self._trains.get(optimizer)
        if known is None:
            self._note_parameters()
            known = any(self._was_noted(one) for group in optimizer.param_groups for one in group["params"])
            self._trains[optimizer] = known
        return known

    def _was_noted(self, parameter: Tensor) -> bool:
        mark = self._parameters.get(id(parameter))
        return mark is not None and mark.is_of(parameter)

    def _note_parameters(self) -> None:
        model = self._model()
        for parameter in model.parameters() if model is not None else ():
            self._parameters[id(parameter)] = private.TensorMark(parameter)

    def _is_wrapper(self, optimizer: Optimizer) -> bool:
        """Return True if the step of an optimizer may call the step of one that was given to `attach`."""
        given = self._optimizers()
        return any(value is one for value in vars(optimizer).values() for one in given)

    # -- some steps --------------------------------------------------------------------------------------------------

    @_contained
    def look(self) -> None:
        """Compare the whole ledger with the model."""
        model = self._model()
        if model is None:
            return
        self._trains.clear()
        self._steps.forget()
        seen = {(key_of(one), one.target): one for one in audit_registrations(model, self._ledger)}
        self._suspected = {key: self._suspected.get(key, self._count) for key in seen}
        lasting = [
            one
            for key, one in seen.items()
            if self._suspected[key] < self._count or is_certain(one, model, self._ledger)
        ]
        self.found.add([*lasting, *self._values.changed()])

    def _uncounted(self, optimizer: Optimizer) -> Iterator[Imbalance]:
        """Yield a difference if an optimizer steps instead of one that was given, so that no step ends."""
        mine = {id(one) for group in optimizer.param_groups for one in group["params"]}
        given = [one for name, one in self._given().items() if name in self._clocks]
        held = {id(one) for other in given for group in other.param_groups for one in group["params"]}
        hook, model = next(iter(self._ledger.hooks), None), self._model()
        freed = len(given) < len(self._clocks)
        idle = bool(given) and model is not None and not any(id(one) in held for one in model.parameters())
        if hook is not None and (freed or idle or mine & held):
            instead = "another optimizer of the same parameters"
            if freed or idle:
                instead = "an optimizer that no longer " + ("exists" if freed else "holds any parameter of the model")
            yield Imbalance(
                "TH706",
                f"the {type(optimizer).__name__} that steps was not given to attach, but {instead} was",
                "give attach the optimizer that steps, or end steps with rig.step()",
                hook.hook.id,
                hook.hook.at,
                severity="warning",
            )
