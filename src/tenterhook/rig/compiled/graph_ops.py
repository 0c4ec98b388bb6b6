"""Doors: where compiled code calls on a rig.

torch.compile takes a door for one operation and does not look inside. So what is behind it may be any Python, and may
change from step to step: the graph stays as it is, in one piece.
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


_doors: weakref.WeakValueDictionary[int, Door] = weakref.WeakValueDictionary()


#: no call, or nothing kept
NONE = -1


class Change(NamedTuple):
    """What took the place of a value: what is passed on; and if it has a derivative, of what and by what graph."""

    new: Tensor
    given: Tensor | None
    made: Tensor


#: by number, for as long as a graph may run backward: the memory of what it holds on to is watched
_changes: dict[int, Change] = {}


#: the kinds of doors that there are
KINDS: list[type[Door]] = []


class Door:
    """One place in compiled code. A graph holds its token, whose first number finds the door when the graph runs, so
    modules of one kind share a graph, each with its own door."""

    def __init_subclass__(cls) -> None:
        KINDS.append(cls)

    def __init__(self) -> None:
        self.number = next(_numbers)
        #: what it does is said to change it, so that no compiler takes it for dead code, or two calls for one
        self.token = torch.tensor([self.number, NONE])
        #: compiled code has come by
        self.used = False
        _doors[self.number] = self

    def enter(self) -> int:
        """A call begins: its number."""
        return 0

    def observe(self, x: Tensor, leaf: int) -> None:
        """A value passes."""

    def change(self, x: Tensor, call: int, leaf: int, *, records: bool, needs_grad: bool) -> Change | None:
        """A value passes that may be replaced. Compiled code has shut autograd out: `records` says whether it recorded,
        `needs_grad` whether it would come by here."""
        return None

    def turn(self, grad: Tensor, call: int, leaf: int, value: Tensor | None) -> Tensor | None:
        """A gradient passes, and may be replaced. It is always passed on by a copy: what a backward would change of its
        forward's is looked at by autograd, which forbids it."""
        return None

    def skip(self, why: str) -> None:
        """There is nothing to pass."""


class CallDoor(Door):
    """Nothing passes, but something is to happen when compiled code comes by; not if a backward runs it once more."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act

    def enter(self) -> int:
        if private.graph_task_id() == -1:
            self._act()
        return 0


#: in place of one whose rig has left: everything passes
_GONE = Door()


_library = torch.library.Library("tenterhook", "DEF")


for _schema in (
    "enter(Tensor(a!) token) -> Tensor",
    "observe(Tensor x, Tensor(a!) token, int leaf) -> ()",
    "change(Tensor x, Tensor ticket, int leaf, bool records, bool needs_grad) -> (Tensor, Tensor)",
    "changed(Tensor change, Tensor(a!) token) -> ()",  # what nobody uses would be left out, and was to be seen
    "change_back(Tensor grad, Tensor change) -> Tensor",
    "turn(Tensor grad, Tensor ticket, int leaf, Tensor? value) -> Tensor",
    "skip(Tensor(a!) token, str why) -> ()",
):
    _library.define(_schema, tags=torch.Tag.cudagraph_unsafe)  # a replayed graph would pass by without calling


operations = torch.ops.tenterhook


def _found(ticket: Tensor) -> tuple[Door, int]:
    """The door, and the number beside its own."""
    number, beside = ticket.tolist()
    door = _doors.get(number, _GONE)
    door.used = True
    return door, beside


def _enter(token: Tensor) -> Tensor:
    door, _ = _found(token)
    return torch.tensor([door.number, door.enter()])


def _observe(x: Tensor, token: Tensor, leaf: int) -> None:
    _found(token)[0].observe(x, leaf)


def _change(x: Tensor, ticket: Tensor, leaf: int, records: bool, needs_grad: bool) -> tuple[Tensor, Tensor]:
    door, call = _found(ticket)
    change = door.change(x, call, leaf, records=records, needs_grad=needs_grad)
    if change is None or change.given is None:
        return _own(None if change is None else change.new, x), torch.tensor(NONE)
    number = next(_numbers)
    held = torch.tensor(number)
    _changes[number] = change
    weakref.finalize(held.untyped_storage(), _changes.pop, number, None).atexit = False
    return _own(change.new, x), held


def _change_back(grad: Tensor, change: Tensor) -> Tensor:
    """The derivative of what the hooks did, by the graph that they made; what else they used gets its gradient, too."""
    number = int(change)
    if number == NONE:
        return _own(None, grad)
    _, given, made = _changes[number]
    assert given is not None
    if not made.requires_grad:
        return torch.zeros_like(grad)
    with dynamo.recording_again():
        torch.autograd.backward(made, grad, retain_graph=private.keeps_graph())
    back, given.grad = given.grad, None
    return torch.zeros_like(grad) if back is None else _own(back, grad)


def _turn(grad: Tensor, ticket: Tensor, leaf: int, value: Tensor | None) -> Tensor:
    door, call = _found(ticket)
    return _own(door.turn(grad, call, leaf, value), grad)


def _skip(token: Tensor, why: str) -> None:
    _found(token)[0].skip(why)


def _nothing(*given: object) -> None:
    return None


def _own(new: Tensor | None, x: Tensor) -> Tensor:
    """What an operation may give back: memory of its own, laid out as it was promised."""
    promised = torch.empty_like(x)
    if new is None:
        return promised.copy_(x)
    new = new.detach()
    return new if new.stride() == promised.stride() else promised.copy_(new)


for _name, _fn in {
    "enter": _enter, "observe": _observe, "change": _change, "changed": _nothing, "change_back": _change_back,
    "turn": _turn, "skip": _skip,
}.items():  # fmt: skip
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


for _name in ("change_back", "turn"):
    torch.library.register_fake(f"tenterhook::{_name}", lambda x, *given: torch.empty_like(x), lib=_library)
