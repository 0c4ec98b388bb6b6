"""Measure the gradients and weights before an optimizer's step, and send all numbers to the host together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.optim import Optimizer

from tenterhook import torch_internals as private
from tenterhook.ranks import RankGroup
from tenterhook.resolve.sharding import is_counted_here, local
from tenterhook.transfers import send_to_device, send_to_host
from tenterhook.verdict.history import GroupSettings

#: number of elements of each parameter that are compared from step to step
SAMPLED = 8
#: number of kinds of numbers, the place of the losses among them, and the place where a rank reports that it failed
_KINDS, _LOSS, _FAILED = 4, 3, 4


@dataclass(frozen=True, slots=True)
class Measured:
    """The numbers that were read in one step. A list has None for a parameter that could not be measured."""

    gradients: list[float | None]
    #: how far the sampled elements moved since the last step
    moved: list[float | None]
    weights: list[float | None] | None
    #: the mean of the losses, or None if there was none
    loss: float | None


class WeightSamples:
    """A few elements of each parameter. They show how far each step moves it, at nearly no cost."""

    def __init__(self) -> None:
        self._places: list[int] = []
        self._views: list[Tensor] = []
        self._addresses: list[int] = []
        self._before: Tensor | None = None

    @torch.no_grad()
    def moved(self, parameters: Sequence[Tensor]) -> tuple[list[int], Tensor | None]:
        """Return the places of the sampled parameters, and how far each of them moved since the last call."""
        addresses = [one.data_ptr() for one in parameters]
        if addresses != self._addresses:
            self._find(parameters)
            self._addresses = addresses
        if not self._views:
            return [], None
        now = torch.cat(self._views).view(-1, SAMPLED)
        before, self._before = self._before, now
        if before is None or before.shape != now.shape:
            return [], None
        moved = now - before
        half = moved.dtype in (torch.float16, torch.bfloat16)
        return self._places, torch.linalg.vector_norm(moved.float() if half else moved, dim=1)

    def _find(self, parameters: Sequence[Tensor]) -> None:
        self._places, self._views = [], []
        for place, one in enumerate(parameters):
            fits = one.is_contiguous() and one.numel() >= SAMPLED and one.device == parameters[0].device
            if fits and one.is_floating_point():
                self._places.append(place)
                self._views.append(one.detach().view(-1)[:: one.numel() // SAMPLED][:SAMPLED])


@dataclass(frozen=True, slots=True)
class Measurement:
    """Numbers that are on their way to the host."""

    _numbers: Callable[[], Tensor]
    _arrange: Callable[[Tensor], Measured]

    def read(self) -> Measured:
        """Wait for the numbers."""
        return self._arrange(self._numbers())


@torch.no_grad()
def measure(
    parameters: Sequence[Tensor],
    places: Iterable[int],
    *,
    losses: Sequence[Tensor] = (),
    samples: WeightSamples | None = None,
    weights: bool = False,
    group: RankGroup | None = None,
) -> Measurement:
    """Measure the gradients of some parameters. All numbers are sent to the host together, without waiting for them.

    Args:
        parameters: The parameters.
        places: The places of the parameters whose gradients are measured.
        losses: The losses of the step.
        samples: Measure how far these samples moved.
        weights: If True, measure the norms of the parameters too.
        group: Measure the parts that these ranks have, and the mean of their losses. All ranks get the same numbers.
    """
    measure_here = partial(
        _measure_here, parameters, places, losses, samples, weights=weights, together=group is not None
    )
    if group is not None:
        shares = [float(is_counted_here(one, group.first)) for one in parameters]
        sums, failure = _sums_here(measure_here, shares)
        arrange = partial(_arrange_sums, count=len(shares), failure=failure, weights=weights)
        return Measurement(send_to_host(group.sum(sums)), arrange)
    parts = measure_here()
    places_of = [part.places for part in parts[:_LOSS]]
    arrange = partial(_arrange, places=places_of, count=len(parameters), weights=weights)
    return Measurement(send_to_host(_flat([one for part in parts for one in part.numbers])), arrange)


@dataclass(frozen=True, slots=True)
class _Part:
    """Numbers of one kind, and the places of the parameters that they belong to."""

    places: list[int]
    numbers: Sequence[Tensor]


def _measure_here(
    parameters: Sequence[Tensor],
    places: Iterable[int],
    losses: Sequence[Tensor],
    samples: WeightSamples | None,
    *,
    weights: bool,
    together: bool,
) -> list[_Part]:
    """Measure the parts of the tensors that this process has. The numbers are still on the device."""
    found = [(at, grad) for at in places if (grad := parameters[at].grad) is not None]
    gradients = [(at, _dense(local(one) if together else one)) for at, one in found]
    values = [local(one.detach()) for one in parameters] if together else parameters
    sampled, distances = samples.moved(values) if samples is not None else ([], None)
    norms = _norms([*(one for _, one in gradients), *(values if weights else ())])
    return [
        _Part([at for at, _ in gradients], norms[: len(gradients)]),
        _Part(sampled, [] if distances is None else [distances]),
        _Part(list(range(len(parameters))) if weights else [], norms[len(gradients) :]),
        _Part([0] * len(losses), losses),
    ]


def _arrange(numbers: Tensor, *, places: Sequence[Sequence[int]], count: int, weights: bool) -> Measured:
    """Arrange the numbers of this process by the places of the parameters."""
    values = iter(numbers.tolist())
    found: list[list[float | None]] = [[None] * count for _ in places]
    for row, some in zip(found, places, strict=True):
        for place in some:
            row[place] = next(values)
    losses = list(values)
    loss = sum(losses) / len(losses) if losses else None
    return Measured(found[0], found[1], found[2] if weights else None, loss)


def _sums_here(measure_here: Callable[[], Sequence[_Part]], shares: Sequence[float]) -> tuple[Tensor, Exception | None]:
    """Return what this rank adds to the sums of all ranks. The squares of norms are added.

    A part that several ranks have is counted once. The layout is the same on all ranks, although a rank may have a
    gradient that another one does not have. A rank that fails takes part too, because the others wait for it. Then all
    of them raise an error.
    """
    failure: Exception | None = None
    try:
        sums = _layout(measure_here(), shares)
    except Exception as error:
        failure, sums = error, _layout([_Part([], [])] * _KINDS, shares)
    sums[1, _FAILED, 0] = float(failure is not None)
    return sums, failure


def _arrange_sums(sums: Tensor, *, count: int, failure: Exception | None, weights: bool) -> Measured:
    """Arrange the sums of all ranks by the places of the parameters."""
    values, counts = sums.tolist()
    if counts[_FAILED][0]:
        raise failure or RuntimeError("another rank could not measure its gradients")
    found = [
        [math.sqrt(value) if times else None for value, times in zip(row, many, strict=True)][:count]
        for row, many in zip(values[:_LOSS], counts[:_LOSS], strict=True)
    ]
    loss = values[_LOSS][0] / counts[_LOSS][0] if counts[_LOSS][0] else None
    return Measured(found[0], found[1], found[2] if weights else None, loss)


def _layout(parts: Sequence[_Part], shares: Sequence[float]) -> Tensor:
    """Return the numbers of this rank, and how many there are, by kind and by the place of the parameter."""
    flat = _flat([one for part in parts for one in part.numbers])
    device = flat.device if flat.numel() else torch.device("cpu")
    sums = torch.zeros(2, _KINDS + 1, max(len(shares), 1), dtype=torch.float64, device=device)
    weights = send_to_device(shares or [1.0], device, torch.float64)
    sizes = [len(part.places) for part in parts]
    for kind, (part, numbers) in enumerate(zip(parts, flat.split(sizes), strict=True)):
        if not part.places:
            continue
        places = send_to_device(part.places, device)
        values = numbers.double()
        sums[0, kind].index_add_(0, places, values if kind == _LOSS else values.square() * weights[places])
        sums[1, kind].index_add_(0, places, torch.ones_like(values))
    return sums


def _dense(gradient: Tensor) -> Tensor:
    """Return the values of a sparse gradient, and any other gradient as it is."""
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def _norms(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the norm of each tensor. A norm in half precision would overflow, so it is computed in float32."""
    half = (torch.float16, torch.bfloat16)
    return private.foreach_norm([one.float() if one.dtype in half else one for one in tensors]) if tensors else []


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    """Return the elements of small tensors in one tensor."""
    if not tensors:
        return torch.zeros(0, device="cpu")
    kinds = {(one.device, one.dtype) for one in tensors}
    if len(kinds) > 1:
        device = tensors[0].device
        dtype = torch.float64 if any(dtype is torch.float64 for _, dtype in kinds) else torch.float32
        tensors = [one.to(device, dtype) for one in tensors]
    return torch.cat([one.reshape(-1) for one in tensors])


def group_settings(optimizers: Sequence[Optimizer]) -> tuple[GroupSettings, ...]:
    """Read the learning rate and the weight decay of each parameter group."""
    return tuple(
        GroupSettings(float(group.get("lr", math.nan)), float(group.get("weight_decay", 0.0) or 0.0))
        for optimizer in optimizers
        for group in optimizer.param_groups
    )
