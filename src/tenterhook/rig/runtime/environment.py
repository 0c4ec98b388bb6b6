"""Defines the objects that all hooks of one rig share at run time."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tenterhook import torch_internals as private
from tenterhook.audit import Imbalances
from tenterhook.errors import TenterhookError
from tenterhook.ranks import RankGroup
from tenterhook.record import Recorder
from tenterhook.resolve.sharding import local
from tenterhook.rig.runtime.step_clock import StepClock


class TrainedModel:
    """Holds weak references to a model and its optimizers."""

    def __init__(self, model: nn.Module, optimizers: Mapping[str, Optimizer]) -> None:
        #: returns the model, or None if it was freed
        self.root = weakref.ref(model)
        self._optimizers = {name: weakref.ref(o) for name, o in optimizers.items()}

    def when_freed(self, release: Callable[[], None]) -> weakref.ref[nn.Module]:
        """Return a reference to the model. While it exists, `release` is called when the model is freed."""
        model = self.root()
        assert model is not None, "the caller of attach holds the model"
        return weakref.ref(model, lambda _: release())

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

    def trained_parameters(self) -> Iterator[Tensor]:
        """Yield the parameters of all optimizers."""
        for optimizer in self.optimizers().values():
            for group in optimizer.param_groups:
                yield from group["params"]

    def is_called(self) -> bool:
        """Return True if a call of the root is running. An interrupt can end a call without running its hooks."""
        root = self.root()
        return root is not None and private.calls_of(root) > 0

    def is_training(self) -> bool:
        """Return True if the root is in training mode, or no longer exists."""
        root = self.root()
        return root is None or root.training


class Witness(NamedTuple):
    """A gradient that was there when a backward pass ended."""

    parameter: Tensor
    mark: private.TensorMark

    def was_cleared(self, accumulated: Tensor | None, failed: int) -> bool | None:
        """Return whether the gradient was cleared since, or None if that is unknown.

        Args:
            accumulated: A parameter to whose gradient PyTorch has just added the gradient of the running backward pass.
            failed: The number of backward passes since that ended with an error. Each may have added to the gradient.
        """
        grad, added = self.parameter.grad, self.parameter is accumulated
        if grad is None or not self.mark.is_of(grad):
            # With create_graph, PyTorch adds to a new tensor. Other hooks may have replaced a sum, too.
            return None if added or (grad is not None and torch.is_grad_enabled()) else True
        now, before = private.version(grad), self.mark.version
        if now is None or before is None or now <= before + added:
            return False
        if added and now <= before + added + failed:
            return None
        # The program has written to the gradient. Reading it waits for the device, but this is rare.
        part = local(grad)
        return True if added or (part.layout is torch.strided and not bool(part.any())) else None


def _nothing() -> None:
    """Do nothing about gradients that were cleared."""


class GradientWatch:
    """Detects gradients that were measured, but cleared before an optimizer used them.

    This happens when GradScaler skips a step. The first firing in the next backward pass compares one gradient with
    what it was: the program may clear gradients before or after the forward pass, and set them to None or to zero.
    """

    def __init__(self, model: TrainedModel) -> None:
        self._model = model
        #: True if a backward pass has produced parameter gradients since the last step
        self.accumulated = False
        #: called when the measured gradients were cleared
        self.on_cleared: Callable[[], None] = _nothing
        #: the backward pass that is running, the one that runs inside it (for a reentrant checkpoint), and the
        #: parameter whose hook was the first one to fire
        self._task = self._inner = -1
        self._first: Tensor | None = None
        #: False if this pass has ended; an error in a backward pass leaves it True until the next forward pass
        self._is_open = False
        #: True until the pass ends without an error, and the passes since the last mark that did not
        self._runs = False
        self._failed = 0
        #: gradients at the end of the last backward pass: that of the first parameter that fired, and another one
        self._witnesses: list[Witness] = []
        #: releases the parameters of the witnesses when the model is freed
        self._root = model.when_freed(self._witnesses.clear)

    def load(self, accumulated: bool) -> None:
        """Continue from a saved state. The gradients themselves may not have been saved."""
        self.accumulated = accumulated
        self._witnesses.clear()

    def begin_forward(self) -> None:
        """Look at the gradients if the state of the hooks was loaded, but perhaps not the gradients themselves."""
        self._is_open = False
        loaded = self.accumulated and not self._witnesses
        if loaded and not any(one.grad is not None for one in self._model.trained_parameters()):
            self._clear()

    def measured(self, parameter: Tensor | None, *, accumulated: bool) -> None:
        """Look at the gradients before the first measurement of a backward pass is used.

        Args:
            parameter: The parameter whose gradient is measured, or None for the gradient of another tensor.
            accumulated: True if `parameter.grad` already contains the gradient of this backward pass.
        """
        task = private.graph_task_id()
        if task in (self._task, self._inner):
            return
        if self._is_open and private.checkpoints_around():
            self._inner = task
            return
        began = task > self._task  # otherwise, this pass has begun before, and the other one has run inside it
        self._failed += began and self._runs
        if began and self.accumulated and self._are_cleared(parameter if accumulated else None):
            self._clear()
        self._task, self._first, self._is_open, self._runs = task, parameter, True, True
        private.at_end_of_backward(self._backward_ended)

    def replacing(self, parameter: Tensor) -> None:
        """Look at the gradients before a hook replaces one, which could not be recognized afterwards."""
        if self.accumulated:
            self.measured(parameter, accumulated=True)

    def _are_cleared(self, accumulated: Tensor | None) -> bool:
        answers = (one.was_cleared(accumulated, self._failed) for one in self._witnesses)
        return next((answer for answer in answers if answer is not None), False)

    def _clear(self) -> None:
        self.accumulated = False
        self._witnesses.clear()
        self.on_cleared()

    def _backward_ended(self) -> None:
        self._is_open = self._runs = False
        first, self._first = self._first, None
        another = (one for one in self._model.trained_parameters() if one is not first and one.grad is not None)
        found = [one for one in (first, next(another, None)) if one is not None]
        grads = [one.grad for one in found if one.grad is not None]
        if not all(any(old.mark.is_unchanged(grad) for old in self._witnesses) for grad in grads):
            self.accumulated = True  # otherwise, this pass has added to no gradient
            self._mark(found)

    def _mark(self, parameters: list[Tensor]) -> None:
        self._failed = 0
        self._witnesses[:] = [Witness(one, private.TensorMark(one.grad)) for one in parameters if one.grad is not None]

    def used_by(self, optimizer: Optimizer) -> None:
        """Expect no more of gradients that an optimizer has used."""
        if not self.accumulated:
            return
        used = {id(one) for group in optimizer.param_groups for one in group["params"]}
        if any(id(one.parameter) in used for one in self._witnesses):
            self.accumulated = False
            self._mark([one.parameter for one in self._witnesses])


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
    #: the ranks that hold the model
    group: RankGroup = field(default_factory=partial(RankGroup, (0,)))
    #: hooks whose registrations do not yet match their status; the installer updates the registrations
    outdated: set[Hashable] = field(default_factory=set)
    #: receives what is not as the ledger says
    found: Imbalances = field(default_factory=Imbalances)

    @classmethod
    def for_model(
        cls,
        model: nn.Module,
        optimizers: Mapping[str, Optimizer],
        *,
        recorder: Recorder | None = None,
        group: RankGroup | None = None,
    ) -> Environment:
        trained, group = TrainedModel(model, optimizers), group or RankGroup((0,))
        errors = DeferredError(shared=not group.is_alone and bool(optimizers))
        return cls(StepClock(trained.is_called), trained, GradientWatch(trained), errors, recorder, group)
