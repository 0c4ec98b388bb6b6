"""Remember the outermost calls into a model since the last optimizer step, so that they can be run again.

A program usually calls the model itself. If a step passes without such a call, as with Lightning's `training_step`, the
modules below the model are watched too, and each of their outermost calls is remembered.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling
from torch.utils.hooks import RemovableHandle

from tenterhook import torch_internals as private
from tenterhook.record.containment import ContainedErrors
from tenterhook.resolve.targets import is_parallel, unwrapped, wrappers
from tenterhook.rig.rerun.buffers import BufferCopies
from tenterhook.rig.rerun.modes import Modes
from tenterhook.rig.rerun.random_state import RandomState
from tenterhook.rig.runtime.entrances import entrances
from tenterhook.rig.runtime.registration import Dispatch
from tenterhook.rig.runtime.tensor_tree import leaves
from tenterhook.torch_internals import compiler as dynamo

ModuleRef: TypeAlias = weakref.ref[nn.Module]

#: what fails if a call cannot be remembered
WATCHING = "watching the calls of the model"
#: largest number of calls that are remembered; a program with more calls in a step is not run again
MAX_CALLS = 256
#: number of elements of each output that are copied, to compare them with those of another run
SAMPLED = 64
#: the generators of Python and NumPy are no longer copied if so many calls did not use them
HOST_TRIALS = 8


@dataclass(slots=True, eq=False, weakref_slot=True)
class ModelCall:
    """An outermost call into the model."""

    module: nn.Module
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    #: the version of each tensor among the arguments; it changes if the tensor is changed in place
    versions: list[int | None]
    random: RandomState
    modes: Modes
    training: bool
    #: for each output that requires grad, its place among all outputs, and some of its elements
    places: list[int] = field(default_factory=list)
    samples: list[Tensor] = field(default_factory=list)
    #: for each backward pass, by its id, the gradients of the outputs
    gradients: dict[int, dict[int, Tensor]] = field(default_factory=dict)
    #: True if the call returned
    ended: bool = False

    @property
    def inputs(self) -> list[Tensor]:
        """Return the tensors among the arguments."""
        return leaves((self.arguments, self.keywords))

    def named_inputs(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors among the arguments, each with the name of the parameter of `forward`."""
        try:
            given = inspect.signature(self.module.forward).bind(*self.arguments, **self.keywords).arguments
        except (TypeError, ValueError):  # a hook changes the arguments, or the module hides its signature
            given = {"args": self.arguments, "kwargs": self.keywords}
        for name, value in given.items():
            yield from ((name, tensor) for tensor in leaves(value))

    def changed_inputs(self) -> bool:
        """Return True if an argument was changed in place after the call began."""
        return [private.version(one) for one in self.inputs] != self.versions


def sample(tensor: Tensor) -> Tensor:
    """Copy some evenly spaced elements of a tensor."""
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // SAMPLED)].clone()


def same_values(first: Tensor, second: Tensor) -> bool:
    """Return True if two tensors have the same values. A NaN is equal to a NaN."""
    return first.shape == second.shape and bool(((first == second) | (first.isnan() & second.isnan())).all())


class CallLog:
    """An object that remembers the outermost calls into a model since the last step.

    Args:
        model: The model.
        errors: Receives the errors of watching, which must not stop the training.
        on_next_pass: Function that is called before a call that follows a backward pass, without an optimizer step
            between them. The program accumulates gradients, or it skipped the step.
    """

    def __init__(self, model: nn.Module, errors: ContainedErrors, on_next_pass: Callable[[], None]) -> None:
        entry = entry_of(model)
        self._entry = weakref.ref(entry)
        self._errors = errors
        self._on_next_pass = on_next_pass
        self.calls: list[ModelCall] = []
        self.buffers = BufferCopies(unwrapped(model))
        devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
        self.devices = [device for device in devices if device.type not in ("cpu", "meta")]
        self._device_types = sorted({device.type for device in devices} - {"meta"})
        #: number of calls that did not use the random generators of Python and NumPy; -1 if a call used them
        self._host_trials = 0
        self._open: ModelCall | None = None
        self._root_was_called = False
        self._below: list[RemovableHandle] = []
        #: why calls cannot be watched, or None if they can
        self.refusal: str | None = None
        if dynamo.is_compiled_in_place(entry):  # the hooks would become a part of the compiled code
            self.refusal = "the model was compiled in place, with model.compile()"
        self._root = list(self._watch(entry)) if self.refusal is None else []

    def _watch(self, module: nn.Module) -> Iterator[RemovableHandle]:
        inner = weakref.ref(unwrapped(module))  # the hooks must not keep the model alive
        yield private.register_first(module, Dispatch(self._begin, inner), with_kwargs=True)
        yield module.register_forward_hook(Dispatch(self._end, inner), always_call=True)

    def remove(self) -> None:
        """Stop watching calls."""
        for handle in (*self._root, *self._below):
            handle.remove()
        self._root, self._below = [], []
        self.clear()

    @property
    def overflowed(self) -> bool:
        """Return True if the step has too many calls."""
        return len(self.calls) > MAX_CALLS

    def clear(self) -> None:
        """Forget the calls."""
        self.calls.clear()
        self._open = None
        self.buffers.clear()

    def end_step(self) -> None:
        """Forget the calls of the step. Watch the modules below the model if the model itself was not called."""
        entry = self._entry()
        if self.refusal is None and entry is not None and not self._root_was_called and not self._below:
            self._below = [one for module in entrances(entry) for one in self._watch(module)]
        elif self._root_was_called and self._below:
            for handle in self._below:
                handle.remove()
            self._below = []
        self._root_was_called = False
        self.clear()

    # -- calls -------------------------------------------------------------------------------------------------------

    @dynamo.skip_dynamo
    def _begin(self, inner: ModuleRef, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not is_dynamo_compiling():
            self._errors.contain(WATCHING, self._note_call, inner, module, args, kwargs)

    @dynamo.skip_dynamo
    def _end(self, inner: ModuleRef, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not is_dynamo_compiling():
            self._errors.contain(WATCHING, self._note_output, inner, output)

    def _note_call(self, inner: ModuleRef, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # A call in a backward pass recomputes a part of an earlier call.
        if private.graph_task_id() != -1 or not torch.is_grad_enabled():
            return
        if module is self._entry():
            self._root_was_called = True
        elif self._open is not None:
            return
        if any(call.gradients for call in self.calls):
            self._on_next_pass()
        if self.overflowed:
            return
        if not self.calls:
            self.buffers.copy()
        hosts = self._host_trials < HOST_TRIALS
        body = inner()
        assert body is not None
        self._open = ModelCall(
            body,
            args,
            kwargs,
            [private.version(one) for one in leaves((args, kwargs))],
            RandomState.now(self.devices, hosts=hosts),
            Modes.now(self._device_types),
            module.training,
        )
        self.calls.append(self._open)

    def _note_output(self, inner: ModuleRef, output: Any) -> None:
        call = self._open
        if call is None or call.module is not inner() or private.graph_task_id() != -1:
            return
        self._open = None
        call.ended = True
        self._look_at_hosts(call)
        call.places = [place for place, one in enumerate(leaves(output)) if one.grad_fn is not None]
        for number, tensor in enumerate(differentiable(output)):
            call.samples.append(sample(tensor))
            tensor.register_hook(partial(_keep, self._errors, weakref.ref(call), number))

    def _look_at_hosts(self, call: ModelCall) -> None:
        """Find out whether calls use the random generators of Python and NumPy."""
        if 0 <= self._host_trials < HOST_TRIALS:
            same = call.random.same_hosts(RandomState.now())
            self._host_trials = self._host_trials + 1 if same else -1


def _keep(errors: ContainedErrors, call: weakref.ref[ModelCall], number: int, gradient: Tensor) -> None:
    errors.contain(WATCHING, _note_gradient, call, number, gradient)


def _note_gradient(call: weakref.ref[ModelCall], number: int, gradient: Tensor) -> None:
    """Remember the gradient of an output."""
    if (there := call()) is not None:
        there.gradients.setdefault(private.graph_task_id(), {})[number] = gradient


def differentiable(output: Any) -> list[Tensor]:
    """Return the tensors of an output to which a gradient can flow."""
    return [tensor for tensor in leaves(output) if tensor.grad_fn is not None]


def entry_of(model: nn.Module) -> nn.Module:
    """Return the module whose hooks run inside a wrapper such as DDP, and outside compiled code."""
    return next(module for module in wrappers(model) if not is_parallel(module))
