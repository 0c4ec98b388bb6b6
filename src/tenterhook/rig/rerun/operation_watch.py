"""Find the operation that produced the first NaN or infinity, while a step runs again.

For every tensor that is not finite, the watch remembers where its first bad value came from. So a bad gradient or
output leads to the operation that caused it, and infinities that have no consequence, as in an attention mask, do not
count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from tenterhook import torch_internals as private
from tenterhook.rig.rerun.module_spans import ModuleSpans

#: operations whose result has arbitrary values
_UNINITIALIZED = frozenset(("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_"))
#: operations that place a constant, which the program has chosen
_PLACES = frozenset(
    ("fill", "fill_", "full", "full_like", "masked_fill", "masked_fill_", "new_full", "scalar_tensor", "where")
)

#: where a bad value came from
Source = Literal["forward", "backward", "input", "parameter", "buffer", "gradient"]


@dataclass(frozen=True, slots=True)
class Origin:
    """The place where the first bad value of a tensor came from.

    `name` is the module that ran the operation, or the name of the parameter, buffer or argument. `operation` is empty
    unless an operation produced the value.
    """

    source: Source
    name: str
    operation: str = ""
    #: "nan", or "inf" if there was no NaN
    value: str = "nan"
    #: the largest magnitude of the operation's inputs
    largest: float | None = None
    #: True if the value has 16 bits, so that a number above 65,504 may have become infinite
    half: bool = False
    #: True if the program placed an infinity on purpose, as in an attention mask
    intended: bool = False
    #: position in the order of all origins
    order: int = 0


class OperationWatch(private.DispatchMode):  # type: ignore[misc]  # its class may be missing
    """A mode in which every operation is checked.

    Args:
        spans: Tells which module runs.
    """

    def __init__(self, spans: ModuleSpans) -> None:
        super().__init__()
        self._spans = spans
        #: for each storage with a bad value, by its address, the origin, and a tensor that keeps the storage alive
        self._origins: dict[int, tuple[Origin, Tensor]] = {}
        self._count = 0

    def mark(self, tensors: Iterable[tuple[str, Tensor]], source: Source) -> None:
        """Note which tensors are bad before anything runs."""
        for name, tensor in tensors:
            if (value := badness(tensor)) is not None:
                intended = value == "-inf" and source in ("input", "buffer")
                order = self._next()
                self._note(Origin(source, name, value=value, intended=intended, order=order), [tensor])

    def put_in(self, recorded: Tensor, gradient: Tensor) -> Tensor:
        """Replace the gradient of an output with the recorded one. Only if it came from inside, it keeps its origin."""
        if badness(recorded) is not None:
            inside = self.origin_of(gradient)
            half = recorded.dtype is torch.float16
            outside = Origin("gradient", "", value=badness(recorded) or "", half=half, order=self._next())
            self._note(inside or outside, [recorded])
        return recorded

    def origin_of(self, tensor: Tensor) -> Origin | None:
        """Return where the first bad value of a tensor came from, or None if the tensor is finite."""
        found = self._origins.get(_address(tensor))
        return found[0] if found is not None and badness(tensor) is not None else None

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _note(self, origin: Origin, tensors: Iterable[Tensor]) -> Origin:
        for tensor in tensors:
            self._origins[_address(tensor)] = origin, tensor
        return origin

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        taken = [] if name in _UNINITIALIZED else _tensors((args, kwargs))
        # An operation in place replaces its input, so the inputs are looked at before.
        before = [origin for tensor in taken if (origin := self.origin_of(tensor))] if self._origins else []
        made = func(*args, **kwargs)
        if name in _UNINITIALIZED or func.is_view:
            return made
        bad = [(tensor, value) for tensor in _tensors(made) if (value := badness(tensor)) is not None]
        if bad:
            self._bad(name, taken, before, bad)
        elif self._origins:
            for tensor in _tensors(made):
                self._origins.pop(_address(tensor), None)
        return made

    def _bad(
        self,
        name: str,
        taken: list[Tensor],
        before: list[Origin],
        bad: list[tuple[Tensor, str]],
    ) -> None:
        value = "nan" if any(found == "nan" for _, found in bad) else bad[0][1]
        earlier = sorted(before, key=lambda one: one.order)
        causes = [one for one in earlier if not one.intended or value == "-inf"]
        if not causes:
            causes = [replace(self._new(name, taken, value, placed=bool(earlier)), half=_is_half(bad))]
        self._note(causes[0], [tensor for tensor, _ in bad])

    def _new(self, name: str, taken: list[Tensor], value: str, *, placed: bool) -> Origin:
        node = private.current_node()
        module = self._spans.running() if node is None else self._spans.of_node(node)
        numbers = [float(t.detach().abs().max()) for t in taken if t.is_floating_point() and t.numel()]
        return Origin(
            "forward" if node is None else "backward",
            module,
            name if node is None else f"{node.name()}: {name}",
            value,
            max(numbers, default=None),
            intended=value == "-inf" and (placed or name in _PLACES),
            order=self._next(),
        )


def badness(tensor: Tensor) -> str | None:
    """Return "nan", "inf" or "-inf" if a tensor has a value that is not finite, otherwise None."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.numel() == 0 or tensor.is_meta:
        return None
    dense = tensor.detach()
    dense = dense.coalesce().values() if dense.is_sparse else dense
    if bool(torch.isfinite(dense).all()):
        return None
    if bool(torch.isnan(dense).any()):
        return "nan"
    return "inf" if dense.is_complex() or bool((dense == torch.inf).any()) else "-inf"


def _is_half(bad: list[tuple[Tensor, str]]) -> bool:
    return any(tensor.dtype is torch.float16 for tensor, _ in bad)


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else id(tensor)


def _tensors(tree: Any) -> list[Tensor]:
    """Return the tensors in the arguments or results of an operation."""
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, tuple | list):
        return [tensor for one in tree for tensor in _tensors(one)]
    if isinstance(tree, dict):
        return [tensor for one in tree.values() for tensor in _tensors(one)]
    return []
