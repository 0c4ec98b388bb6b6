"""Define the context, which tells an action where it runs and stores its state, numbers and tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from torch import Tensor

from tenterhook.errors import ContractError

if TYPE_CHECKING:
    import torch


class StepCounter(Protocol):
    """An object that provides the number of the current step."""

    step: int


@runtime_checkable
class OnDevice(Protocol):
    """A state that has a device, as the state of a rig does."""

    device: torch.device


class Context:
    """The place at which an action runs (hook, target, point and step), with its state, records and random numbers.

    An action receives the context as its second argument: `fn(value, ctx)`. tenterhook creates one context for each
    target of a hook when the hook is attached. `call` and `leaf` change each time the hook fires.

    Args:
        hook: Id of the hook.
        target: Name of the target.
        point: Name of the point.
        rank: Rank of this process.
        clock: Step counter.

    Attributes:
        hook: Id of the hook.
        target: Name of the target.
        point: Name of the point.
        rank: Rank of this process.
        leaf: Index of the tensor within the call, if the call has several tensors.
        merged: Merged partial results of a two-phase action, by name.
        state: Tensors of this hook and target, by name. They are saved in checkpoints. If a name is declared with
            `@th.action(state=...)`, its tensor is one float64 number. Under any other name, the tensor may have any
            shape.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> def show(grad, ctx):
        ...     print(ctx.hook, ctx.point, ctx.target, ctx.step)
        >>> model = torch.nn.Linear(2, 1)
        >>> rig = th.attach(model, th.Hook("show", on="weight", at="grad", do=show))
        >>> model(torch.ones(1, 2)).sum().backward()
        show grad weight 0
    """

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
        #: index of the tensor within the call
        self.leaf = 0
        self._call: int | None = 0
        #: the step of the forward pass that a checkpoint is recomputing, or None
        self._step: int | None = None
        #: merged partial results of a two-phase action
        self.merged: Mapping[str, Tensor] = {}
        #: tensors of this site, which are saved in checkpoints; the declared numbers of all sites share one tensor
        self.state: MutableMapping[str, Tensor] = {}
        self._clock = clock
        self._value: Tensor | None = None
        self._source: Callable[[], Tensor | None] | None = None
        self._emit: Callable[[Context, str, Any], None] | None = None
        self._keep: Callable[[Context, Tensor, Literal["cpu"] | None, int], None] | None = None
        self._generator: Callable[[int, torch.device], torch.Generator] | None = None

    @property
    def step(self) -> int:
        """Return the number of the current step."""
        return self._clock.step if self._step is None else self._step

    @property
    def call(self) -> int:
        """Return the index of the current call of the target within the step.

        Raises:
            ContractError: Activation checkpointing recomputes one of several calls, but the index of that call is
                unknown.
        """
        if self._call is None:
            raise ContractError(
                "a checkpoint recomputes one of several calls, but the index of that call is unknown",
                hook=self.hook,
                target=self.target,
                point=self.point,
                remedy="do not use ctx.call in an action that modifies a checkpointed module that is called several "
                "times",
            )
        return self._call

    @property
    def value(self) -> Tensor:
        """Return the tensor to which the gradient belongs, detached from the graph.

        At parameter points, this is the parameter itself.

        Raises:
            ContractError: The value was not kept. Register the action with `needs_value=True`.
        """
        if self._source is not None:
            self._value = self._source()
        if self._value is None:
            raise ContractError(
                "the value was not kept for this action",
                hook=self.hook,
                target=self.target,
                point=self.point,
                remedy="register the action with @th.action(..., needs_value=True). Keeping the value costs memory",
            )
        return self._value

    def emit(self, name: str, value: Tensor | float) -> None:
        """Record one number for the sinks and for `rig.values(id)`.

        The number stays on its device until the end of the step.

        Args:
            name: Name of the number.
            value: A number, or a tensor with one element.

        Raises:
            ContractError: `value` does not have exactly one element, or is a DTensor.

        Example:
            >>> import torch
            >>> import tenterhook as th
            >>> model = torch.nn.Linear(2, 1)
            >>> hook = th.Hook("sum", on="weight", at="grad", do=lambda g, ctx: ctx.emit("sum", g.sum()))
            >>> rig = th.attach(model, hook)
            >>> model(torch.ones(1, 2)).sum().backward()
            >>> rig.values("sum")
            {'weight': {'sum': 2.0}}
        """
        if isinstance(value, Tensor) and value.numel() != 1:
            raise ContractError(
                f"emit received a tensor of shape {tuple(value.shape)}",
                remedy="emit one number, such as x.norm() or x.mean()",
            )
        if hasattr(value, "full_tensor"):
            raise ContractError(
                "emit received a DTensor, which is spread over ranks",
                remedy="emit a number of the whole tensor, x.full_tensor(), or of the part of this rank, x.to_local()",
            )
        if self._emit is not None:
            self._emit(self, name, value)

    def keep(self, tensor: Tensor, *, to: Literal["cpu"] | None = None, most: int = 4096) -> None:
        """Keep a copy of a tensor for `rig.captured(id)`.

        Args:
            tensor: The tensor to copy.
            to: `"cpu"` keeps the copy in the memory of the host. By default, it stays on its device.
            most: Largest number of copies of this hook in one step. Further tensors are not kept, but counted.
        """
        if self._keep is not None:
            self._keep(self, tensor, to, most)

    def generator(self, seed: int = 0, device: Any = None) -> torch.Generator:
        """Return the random generator of this hook.

        The state of the generator is saved in checkpoints, so a resumed run draws the same numbers. PyTorch's global
        generators are not used. At forward points, the generator is reseeded for each call, based on the target and the
        forward pass, so that a call draws the same numbers when activation checkpointing recomputes it.

        Args:
            seed: Seed of the generator. Generators with different seeds are independent.
            device: Device of the generator. The default is the device of the value.

        Returns:
            The generator.

        Example:
            >>> import torch
            >>> import tenterhook as th
            >>> def jitter(grad, ctx):
            ...     return grad + 0.01 * torch.randn(grad.shape, generator=ctx.generator(seed=1))
            >>> x = torch.ones(3, requires_grad=True)
            >>> handle = th.hook(x, jitter)
            >>> x.sum().backward()
            >>> handle.changed
            1
        """
        assert self._generator is not None
        if device is None:
            assert isinstance(self.state, OnDevice)
            device = self.state.device
        return self._generator(seed, device)
