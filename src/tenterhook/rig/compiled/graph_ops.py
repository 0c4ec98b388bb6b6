"""Our operations inside compiled graphs: where compiled code calls a rig.

torch.compile sees one opaque operation and does not look inside. So what it calls may be any Python, and may change
from step to step: the graph stays as it is, in one piece.
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
#: no call, or nothing kept
NONE = -1


class Change(NamedTuple):
    """What replaces a value: what is passed on and, if it has a derivative, the input and the output of its graph."""

    new: Tensor
    given: Tensor | None
    made: Tensor


#: by number, for as long as a graph may run backward: freeing the number that it holds removes the entry
_changes: dict[int, Change] = {}
#: all classes of callbacks
KINDS: list[type[GraphCallback]] = []


class GraphCallback:
    """One place in compiled code that calls a rig.

    A graph holds its token, whose first number finds the callback when the graph runs. So modules of one class share a
    graph, each with its own callback.
    """

    def __init_subclass__(cls) -> None:
        KINDS.append(cls)

    def __init__(self) -> None:
        self.number = next(_numbers)
        #: declared mutated by each operation, so that the compiler cannot drop or deduplicate a call
        self.token = torch.tensor([self.number, NONE])
        #: compiled code has called it
        self.used = False
        _callbacks[self.number] = self

    def enter(self) -> int:
        """Begin a call and return its number."""
        return 0

    def observe(self, x: Tensor, leaf: int) -> None:
        """Observe a value."""

    def change(self, x: Tensor, call: int, leaf: int, *, records: bool, needs_grad: bool) -> Change | None:
        """Return what replaces a value, or None.

        Autograd is switched off inside an operation: `records` is True if it recorded outside, `needs_grad` if a
        gradient will come back through here.
        """
        return None

    def on_gradient(self, grad: Tensor, call: int, leaf: int, value: Tensor | None) -> Tensor | None:
        """Return what replaces a gradient, or None.

        The operation always returns a copy: autograd forbids a backward that changes what its forward made.
        """
        return None

    def skip(self, why: str) -> None:
        """Skip a call that has no tensor, or none that requires a gradient."""


class EntryCallback(GraphCallback):
    """Runs a function when compiled code enters a module, but not when a backward recomputes the call."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act

    def enter(self) -> int:
        if private.graph_task_id() == -1:
            self._act()
        return 0


#: stands for a callback whose rig has left: it changes nothing
_GONE = GraphCallback()
_library = torch.library.Library("tenterhook", "DEF")


for _schema in (
    "enter(Tensor(a!) token) -> Tensor",
    "observe(Tensor x, Tensor(a!) token, int leaf) -> ()",
    "change(Tensor x, Tensor ticket, int leaf, bool records, bool needs_grad) -> (Tensor, Tensor)",
    "changed(Tensor change, Tensor(a!) token) -> ()",  # what nobody uses would be left out, and was to be seen
    "change_back(Tensor grad, Tensor change) -> Tensor",
    "on_gradient(Tensor grad, Tensor ticket, int leaf, Tensor? value) -> Tensor",
    "skip(Tensor(a!) token, str why) -> ()",
):
    _library.define(_schema, tags=torch.Tag.cudagraph_unsafe)  # a replayed graph would pass by without calling


operations = torch.ops.tenterhook


def _found(ticket: Tensor) -> tuple[GraphCallback, int]:
    """Return the callback of a ticket, and the number of the call."""
    number, call = ticket.tolist()
    callback = _callbacks.get(number, _GONE)
    callback.used = True
    return callback, call


def _enter(token: Tensor) -> Tensor:
    callback, _ = _found(token)
    return torch.tensor([callback.number, callback.enter()])


def _observe(x: Tensor, token: Tensor, leaf: int) -> None:
    _found(token)[0].observe(x, leaf)


def _change(x: Tensor, ticket: Tensor, leaf: int, records: bool, needs_grad: bool) -> tuple[Tensor, Tensor]:
    callback, call = _found(ticket)
    change = callback.change(x, call, leaf, records=records, needs_grad=needs_grad)
    if change is None or change.given is None:
        return _owned(None if change is None else change.new, x), torch.tensor(NONE)
    number = next(_numbers)
    held = torch.tensor(number)
    _changes[number] = change
    weakref.finalize(held.untyped_storage(), _changes.pop, number, None).atexit = False
    return _owned(change.new, x), held


def _change_back(grad: Tensor, change: Tensor) -> Tensor:
    """Run backward through the graph that the hooks made; what else they used gets its gradient, too."""
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
    """Return memory that the operation owns, laid out as its fake promised."""
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


torch.library.register_fake("tenterhook::enter", lambda token: torch.empty(2, dtype=torch.int64), lib=_library)


torch.library.register_fake(
    "tenterhook::change",
    lambda x, *given: (torch.empty_like(x), torch.empty((), dtype=torch.int64)),
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
