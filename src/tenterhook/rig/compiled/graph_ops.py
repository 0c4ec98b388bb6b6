"""Defines the custom operations through which compiled code calls a rig's hooks.

torch.compile treats each operation as opaque. Therefore, the hooks may run any Python code and may change between steps
without causing a graph break or a recompilation.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from tenterhook import torch_internals as private
from tenterhook.torch_internals import compiler as dynamo

_numbers = itertools.count()
_callbacks: weakref.WeakValueDictionary[int, GraphCallback] = weakref.WeakValueDictionary()
#: stands for "no call" or "no change"
NONE = -1


class Change(NamedTuple):
    """Describes the replacement of a value.

    `new` is the tensor that replaces the value. If a gradient must flow back, `given` and `made` are the input and the
    output of the autograd graph that the hooks built.
    """

    new: Tensor
    given: Tensor | None
    made: Tensor


#: changes by number; an entry is removed when the autograd graph frees the tensor that contains its number
_changes: dict[int, Change] = {}
#: all subclasses of `GraphCallback`
KINDS: list[type[GraphCallback]] = []


class GraphCallback:
    """Represents a place in compiled code that calls a rig's hooks.

    The token is an input to the graph, and its first element identifies the callback at run time. Therefore, modules of
    the same class can share a graph, although each module has its own callback.
    """

    def __init_subclass__(cls) -> None:
        KINDS.append(cls)

    def __init__(self) -> None:
        self.number = next(_numbers)
        #: operations declare that they mutate the token, so that the compiler cannot drop or merge their calls
        self.token = torch.tensor([self.number, NONE], device="cpu")
        #: True once compiled code has called this callback
        self.used = False
        _callbacks[self.number] = self

    def enter(self) -> int:
        """Begin a call and return its number."""
        return 0

    def observe(self, x: Tensor, leaf: int) -> None:
        """Observe a value."""

    def change(self, x: Tensor, call: int, leaf: int, *, records: bool, needs_grad: bool) -> Change | None:
        """Return the replacement for a value, or None to keep it.

        Autograd records nothing inside a custom operation. `records` is True if autograd records the surrounding code.
        `needs_grad` is True if the backward pass will send a gradient through this value.
        """
        return None

    def on_gradient(self, grad: Tensor, call: int, leaf: int, value: Tensor | None) -> Tensor | None:
        """Return the replacement for a gradient, or None to keep it.

        The operation always returns a new tensor. Unlike `observe`, it cannot mutate the token, because autograd does
        not allow a backward pass to mutate tensors from the forward pass.
        """
        return None

    def skip(self, why: str) -> None:
        """Record that the call was skipped, and why."""


class EntryCallback(GraphCallback):
    """Calls a function when compiled code enters a module, but not when a backward pass recomputes that call."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act

    def enter(self) -> int:
        if private.graph_task_id() == -1:
            self._act()
        return 0


#: replaces a callback whose rig was detached, and changes nothing
_GONE = GraphCallback()
_library = torch.library.Library("tenterhook", "DEF")


for _schema in (
    "enter(Tensor(a!) token) -> Tensor",
    "observe(Tensor x, Tensor(a!) token, int leaf) -> ()",
    "change(Tensor x, Tensor ticket, int leaf, bool records, bool needs_grad) -> (Tensor, Tensor)",
    # uses a result of `change`, because the compiler would drop a `change` call whose results are unused
    "changed(Tensor change, Tensor(a!) token) -> ()",
    "change_back(Tensor grad, Tensor change) -> Tensor",
    "on_gradient(Tensor grad, Tensor ticket, int leaf, Tensor? value) -> Tensor",
    "skip(Tensor(a!) token, str why) -> ()",
):
    _library.define(_schema, tags=torch.Tag.cudagraph_unsafe)  # replaying a CUDA graph would not run the Python code


operations = torch.ops.tenterhook


def _found(ticket: Tensor) -> tuple[GraphCallback, int]:
    """Return the callback that a ticket identifies, and the number of the call."""
    private.require(private.Capability.COMPILED)
    number, call = ticket.tolist()
    callback = _callbacks.get(number, _GONE)
    callback.used = True
    if private.graph_task_id() == -1:
        # The graph of a checkpoint saves the token. PyTorch would refuse to use it after the next forward pass, because
        # its version would be another one.
        private.set_versions([callback.token], [0])
    return callback, call


def _enter(token: Tensor) -> Tensor:
    callback, _ = _found(token)
    return torch.tensor([callback.number, callback.enter()], device="cpu")


def _observe(x: Tensor, token: Tensor, leaf: int) -> None:
    _found(token)[0].observe(x, leaf)


def _change(x: Tensor, ticket: Tensor, leaf: int, records: bool, needs_grad: bool) -> tuple[Tensor, Tensor]:
    callback, call = _found(ticket)
    change = callback.change(x, call, leaf, records=records, needs_grad=needs_grad)
    if change is None or change.given is None:
        return _owned(None if change is None else change.new, x), torch.tensor(NONE, device="cpu")
    number = next(_numbers)
    held = torch.tensor(number, device="cpu")
    _changes[number] = change
    weakref.finalize(held.untyped_storage(), _changes.pop, number, None).atexit = False
    return _owned(change.new, x), held


def _change_back(grad: Tensor, change: Tensor) -> Tensor:
    """Run the backward pass of the graph that the hooks built.

    The other leaf tensors of that graph also receive gradients.
    """
    number = int(change)
    if number == NONE:
        return _owned(None, grad)
    _, given, made = _changes[number]
    assert given is not None
    if not made.requires_grad:
        return torch.zeros_like(grad)
    with dynamo.recording_again():
        torch.autograd.backward(made, grad, retain_graph=private.keeps_graph())
    back, given.grad = given.grad, None
    return torch.zeros_like(grad) if back is None else _owned(back, grad)


def _on_gradient(grad: Tensor, ticket: Tensor, leaf: int, value: Tensor | None) -> Tensor:
    callback, call = _found(ticket)
    return _owned(callback.on_gradient(grad, call, leaf, value), grad)


def _skip(token: Tensor, why: str) -> None:
    _found(token)[0].skip(why)


def _nothing(*given: object) -> None:
    return None


def _owned(new: Tensor | None, x: Tensor) -> Tensor:
    """Return a tensor whose memory the operation owns, with the strides that the fake implementation declares."""
    promised = torch.empty_like(x)
    if new is None:
        return promised.copy_(x)
    new = new.detach()
    return new if new.stride() == promised.stride() else promised.copy_(new)


for _name, _fn in {
    "enter": _enter,
    "observe": _observe,
    "change": _change,
    "changed": _nothing,
    "change_back": _change_back,
    "on_gradient": _on_gradient,
    "skip": _skip,
}.items():
    _library.impl(_name, _fn, "CompositeExplicitAutograd")


for _name in ("observe", "changed", "skip"):
    torch.library.register_fake(f"tenterhook::{_name}", _nothing, lib=_library)


torch.library.register_fake(
    "tenterhook::enter", lambda token: torch.empty(2, dtype=torch.int64, device="cpu"), lib=_library
)


torch.library.register_fake(
    "tenterhook::change",
    lambda x, *given: (torch.empty_like(x), torch.empty((), dtype=torch.int64, device="cpu")),
    lib=_library,
)


torch.library.register_autograd(
    "tenterhook::change",
    lambda ctx, grad, _: (operations.change_back(grad, *ctx.saved_tensors), None, None, None, None),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output[1]),
    lib=_library,
)


for _name in ("change_back", "on_gradient"):
    torch.library.register_fake(f"tenterhook::{_name}", lambda x, *given: torch.empty_like(x), lib=_library)
