"""Examine what a hook returned, and compare it with what the hook was given."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tenterhook import torch_internals as private
from tenterhook.doctor.observe.values.stored import tensors


@dataclass(slots=True)
class Returned:
    """Facts about the values that a hook returned."""

    #: what a forward hook returned instead of a value like the output, or None
    odd: str | None = None
    #: how many arguments a pre-hook returned and how many it was given, if it returned fewer
    fewer: tuple[int, int] | None = None
    #: the index of a value in the output, and its index in the tuple that a forward hook returned
    swapped: tuple[int, int] | None = None
    #: the shape or type of a tensor that a forward hook returned, if it is not that of the output
    misshapen: str | None = None
    #: returned values that have no graph, although the values that the hook was given have one
    without_graph: int = 0
    #: what a hook returned instead of a value that PyTorch accepts, or None
    invalid: str | None = None
    #: the class of a value that PyTorch ignores, or None
    ignored: str | None = None
    #: firings in which a hook stored the output and returned another tensor
    stored_before: int = 0
    _last: weakref.ref[Tensor] | None = None

    def look_at_output(self, out: Any, output: Any) -> None:
        """Compare what a forward hook returned with the output of its module."""
        if self.odd is None:
            earlier = self._last() if self._last is not None else None
            again = isinstance(out, Tensor) and out is earlier and out is not output
            self.odd = "the value of an earlier call" if again else _odd(out, output)
            self._last = weakref.ref(out) if isinstance(out, Tensor) else None
        if self.swapped is None and isinstance(out, tuple) and isinstance(output, tuple):
            self.swapped = _swapped(out, output)
        if isinstance(out, Tensor) and isinstance(output, Tensor):
            if out.shape != output.shape:
                self.misshapen = f"the shape {list(out.shape)} instead of {list(output.shape)}"
            elif out.dtype != output.dtype:
                self.misshapen = f"the type {out.dtype} instead of {output.dtype}"
        self.look_at_graph(out, output)

    def look_at_arguments(self, out: Any, args: Any, *, with_kwargs: bool) -> None:
        """Compare what a forward pre-hook returned with the arguments of its module."""
        if with_kwargs:
            pair = isinstance(out, tuple) and len(out) == 2
            self.invalid = None if pair else f"{_kind(out)} instead of a tuple (args, kwargs)"
        else:
            returned = len(out) if isinstance(out, tuple) else 1
            if returned < len(args):
                self.fewer = returned, len(args)
        self.look_at_graph(out, args)

    def look_at_graph(self, out: Any, given: Any) -> None:
        """Compare the graph of what a hook returned with the graph of what it was given."""
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors((given,))):
            made = [t for t in tensors((out,)) if t.is_floating_point()]
            self.without_graph += bool(made) and not any(t.requires_grad for t in made)

    def look_at_ignored(self, out: Any) -> None:
        """Record a value that PyTorch ignores, if it contains tensors."""
        if isinstance(out, Mapping) or next(tensors((out,)), None) is not None:
            self.ignored = type(out).__name__


@dataclass(frozen=True, slots=True)
class Versions:
    """The tensors that a hook was given, with their versions before the call."""

    before: tuple[tuple[Tensor, int | None], ...]

    @classmethod
    def of(cls, values: Any) -> Versions:
        return cls(tuple((t, private.version(t)) for t in tensors((values,))))

    def changed(self) -> list[Tensor]:
        """Return the tensors that were changed in place since then."""
        return [tensor for tensor, version in self.before if private.version(tensor) != version]


def beside_the_loss(output: Any) -> dict[str, tuple[int, int | None]]:
    """Return the tensors of an output that already contains a loss, by name; empty if it contains no loss."""
    if not isinstance(output, Mapping) or not isinstance(output.get("loss"), Tensor):
        return {}
    found = {name: value for name, value in output.items() if isinstance(value, Tensor) and name != "loss"}
    return {str(name): (id(value), private.version(value)) for name, value in found.items()}


def is_data(tensor: Tensor) -> bool:
    """Return True for a part of a larger tensor that no operation with a graph has computed."""
    base = private.view_base(tensor)
    return base is not None and tensor.grad_fn is None and base.numel() > tensor.numel()


def _swapped(out: tuple[Any, ...], output: tuple[Any, ...]) -> tuple[int, int] | None:
    places = {id(value): index for index, value in enumerate(output) if isinstance(value, Tensor)}
    for index, value in enumerate(out):
        before = places.get(id(value), index)
        if before != index:
            return before, index
    return None


def _odd(out: Any, output: Any) -> str | None:
    """Describe what a hook returned if it is not of the same kind as the output of the module."""
    if isinstance(out, Tensor) and isinstance(output, Tensor):
        return None
    if isinstance(out, type(output)) or isinstance(output, type(out)):
        return None
    return f"{_kind(out)} instead of {_kind(output)}"


def _kind(value: Any) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
