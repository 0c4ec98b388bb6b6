"""Doors: where compiled code calls on a rig.

torch.compile takes a door for one operation and does not look inside. So what is behind it may be any Python, and may
change from step to step: the graph stays as it is, in one piece.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from tenterhook.rig import torch_private as private

_numbers = itertools.count()
_doors: weakref.WeakValueDictionary[int, Door] = weakref.WeakValueDictionary()

#: no call, or nothing kept
NONE = -1

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

    def change(self, x: Tensor, call: int, leaf: int, *, records: bool) -> tuple[Tensor | None, int]:
        """A value passes that may be replaced; with it, what finds its derivative."""
        return None, NONE

    def change_back(self, grad: Tensor, kept: int) -> Tensor | None:
        """The gradient of what was replaced comes back."""
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
    "change(Tensor x, Tensor ticket, int leaf, bool records) -> (Tensor, Tensor)",
    "change_back(Tensor grad, Tensor kept) -> Tensor",
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


def _change(x: Tensor, ticket: Tensor, leaf: int, records: bool) -> tuple[Tensor, Tensor]:
    door, call = _found(ticket)
    new, kept = door.change(x, call, leaf, records=records)
    return _own(new, x), torch.tensor([door.number, kept])


def _change_back(grad: Tensor, kept: Tensor) -> Tensor:
    door, key = _found(kept)
    return _own(None if key == NONE else door.change_back(grad, key), grad)


def _turn(grad: Tensor, ticket: Tensor, leaf: int, value: Tensor | None) -> Tensor:
    door, call = _found(ticket)
    return _own(door.turn(grad, call, leaf, value), grad)


def _skip(token: Tensor, why: str) -> None:
    _found(token)[0].skip(why)


def _own(new: Tensor | None, x: Tensor) -> Tensor:
    """What an operation may give back: memory of its own, laid out as it was promised."""
    promised = torch.empty_like(x)
    if new is None:
        return promised.copy_(x)
    new = new.detach()
    return new if new.stride() == promised.stride() else promised.copy_(new)


for _name, _fn in {
    "enter": _enter, "observe": _observe, "change": _change, "change_back": _change_back, "turn": _turn, "skip": _skip,
}.items():  # fmt: skip
    _library.impl(_name, _fn, "CompositeExplicitAutograd")


def _ticket() -> Tensor:
    return torch.empty(2, dtype=torch.int64)


def _nothing(*given: object) -> None:
    return None


for _name in ("observe", "skip"):
    torch.library.register_fake(f"tenterhook::{_name}", _nothing, lib=_library)
torch.library.register_fake("tenterhook::enter", lambda token: _ticket(), lib=_library)
torch.library.register_fake(
    "tenterhook::change", lambda x, ticket, leaf, records: (torch.empty_like(x), _ticket()), lib=_library
)
torch.library.register_autograd(
    "tenterhook::change",
    lambda ctx, grad, kept: (operations.change_back(grad, *ctx.saved_tensors), None, None, None),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output[1]),
    lib=_library,
)
for _name in ("change_back", "turn"):
    torch.library.register_fake(f"tenterhook::{_name}", lambda x, *given: torch.empty_like(x), lib=_library)
