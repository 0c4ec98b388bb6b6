"""Context: what an action may know and use besides its value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import Tensor

from tenterhook.errors import ContractError

if TYPE_CHECKING:
    import torch


class StepCounter(Protocol):
    """The part of the step clock that an action may read."""

    step: int


@runtime_checkable
class OnDevice(Protocol):
    """State that has a device: a rig's."""

    device: torch.device


class Context:
    """One for each site, made when it is attached; `call` and `leaf` change with each firing."""

    __slots__ = (
        "_call",
        "_clock",
        "_emit",
        "_generator",
        "_keep",
        "_source",
        "_step",
        "_value",
        "hook",
        "leaf",
        "merged",
        "point",
        "rank",
        "state",
        "target",
    )

    def __init__(self, *, hook: str, target: str, point: str, rank: int, clock: StepCounter) -> None:
        self.hook = hook
        self.target = target
        self.point = point
        self.rank = rank
        #: which tensor leaf of the call
        self.leaf = 0
        self._call: int | None = 0
        #: in a recomputation: the step it belongs to
        self._step: int | None = None
        #: of a two-phase action: its partial results, merged
        self.merged: Mapping[str, Tensor] = {}
        #: tensors of this site that are kept in checkpoints; declared ones are packed over the hook's sites
        self.state: MutableMapping[str, Tensor] = {}
        self._clock = clock
        self._value: Tensor | None = None
        self._source: Callable[[], Tensor | None] | None = None
        self._emit: Callable[[Context, str, Any], None] | None = None
        self._keep: Callable[[Context, Tensor], None] | None = None
        self._generator: Callable[[int, torch.device], torch.Generator] | None = None

    @property
    def step(self) -> int:
        return self._clock.step if self._step is None else self._step

    @property
    def call(self) -> int:
        """Which call of the target within the step."""
        if self._call is None:
            raise ContractError(
                "a checkpoint recomputes one of several calls, and it cannot be told which",
                hook=self.hook,
                target=self.target,
                point=self.point,
                remedy="do not use ctx.call in an action that modifies a checkpointed module called several times",
            )
        return self._call

    @property
    def value(self) -> Tensor:
        """The tensor whose gradient this is, without its graph."""
        if self._source is not None:
            self._value = self._source()
        if self._value is None:
            raise ContractError(
                "the value was not kept for this action",
                hook=self.hook,
                target=self.target,
                point=self.point,
                remedy="register the action with @th.action(..., needs_value=True): keeping a value costs memory",
            )
        return self._value

    def emit(self, name: str, value: Tensor | float) -> None:
        """Record one number of this firing; it stays on its device until the step ends."""
        if isinstance(value, Tensor) and value.numel() != 1:
            raise ContractError(
                f"emit was given {tuple(value.shape)}", remedy="it records one number: x.norm(), x.mean(), ..."
            )
        if self._emit is not None:
            self._emit(self, name, value)

    def keep(self, tensor: Tensor) -> None:
        """Keep a copy of a tensor for `rig.captured`."""
        if self._keep is not None:
            self._keep(self, tensor)

    def generator(self, seed: int = 0, device: Any = None) -> torch.Generator:
        """Return the hook's own random numbers, on the value's device; they are kept in checkpoints, and the global
        generators are never touched."""
        assert self._generator is not None
        if device is None:
            assert isinstance(self.state, OnDevice)
            device = self.state.device
        return self._generator(seed, device)
