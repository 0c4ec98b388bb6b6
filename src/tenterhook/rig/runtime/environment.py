"""Defines the objects that all hooks of one rig share at run time."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from torch import nn
from torch.optim import Optimizer

from tenterhook import torch_internals as private
from tenterhook.errors import TenterhookError
from tenterhook.record import Recorder
from tenterhook.rig.runtime.step_clock import StepClock


class TrainedModel:
    """Holds weak references to a model and its optimizers."""

    def __init__(self, model: nn.Module, optimizers: Mapping[str, Optimizer]) -> None:
        #: returns the model, or None if it was freed
        self.root = weakref.ref(model)
        self._optimizers = {name: weakref.ref(o) for name, o in optimizers.items()}

    def optimizers(self) -> dict[str, Optimizer]:
        """Return the optimizers that still exist, by name."""
        return {name: o for name, ref in self._optimizers.items() if (o := ref()) is not None}

    def freed_optimizers(self) -> list[str]:
        """Return the names of the optimizers that no longer exist."""
        return [name for name, ref in self._optimizers.items() if ref() is None]

    @property
    def optimizer_names(self) -> list[str]:
        """Return the names of all optimizers that were passed in, even if they no longer exist."""
        return list(self._optimizers)

    @property
    def has_optimizers(self) -> bool:
        """Return True if the rig was attached with optimizers, even if they no longer exist."""
        return bool(self._optimizers)

    def has_gradients(self) -> bool:
        """Return True if a parameter of any optimizer has a gradient."""
        groups = [group for o in self.optimizers().values() for group in o.param_groups]
        return any(p.grad is not None for group in groups for p in group["params"])

    def is_training(self) -> bool:
        """Return True if the root is in training mode, or no longer exists."""
        root = self.root()
        return root is None or root.training


class GradientWatch:
    """Detects whether a backward pass has produced parameter gradients since the last step.

    If the gradients are cleared before the next `optimizer.step()`, the backward pass was abandoned.
    """

    def __init__(self, model: TrainedModel) -> None:
        self._model = model
        self.accumulated = False
        #: True while a callback for the end of the running backward pass is queued
        self._waits = False

    def measured(self) -> None:
        """Schedule a check for gradients at the end of the running backward pass."""
        if not self._waits:
            self._waits = True
            private.at_end_of_backward(self._backward_ended)

    def _backward_ended(self) -> None:
        self._waits = False
        self.accumulated = self.accumulated or self._model.has_gradients()

    def begin_forward(self) -> None:
        """Discard a scheduled check that never ran because its backward pass raised an error."""
        self._waits = False


class DeferredError:
    """Stores an error until all ranks can raise it together, before the optimizer step.

    If one rank raised the error earlier, the other ranks would wait for that rank in a collective.
    """

    def __init__(self, *, shared: bool = False) -> None:
        #: True if this rank trains together with other ranks
        self.shared = shared
        self._first: TenterhookError | None = None

    def defer(self, error: TenterhookError) -> None:
        self._first = self._first or error

    def take(self) -> TenterhookError | None:
        error, self._first = self._first, None
        return error


@dataclass(frozen=True, slots=True)
class Environment:
    """Holds the objects that all hooks of one rig share."""

    clock: StepClock
    model: TrainedModel
    gradients: GradientWatch
    errors: DeferredError = field(default_factory=DeferredError)
    recorder: Recorder | None = None
    #: hooks whose registrations do not yet match their status; the installer updates the registrations
    outdated: set[Hashable] = field(default_factory=set)

    @classmethod
    def for_model(
        cls,
        model: nn.Module,
        optimizers: Mapping[str, Optimizer],
        *,
        recorder: Recorder | None = None,
        shared: bool = False,
    ) -> Environment:
        trained = TrainedModel(model, optimizers)
        return cls(StepClock(), trained, GradientWatch(trained), DeferredError(shared=shared), recorder)
