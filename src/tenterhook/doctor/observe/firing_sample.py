"""Summarize one firing of a hook: the tensor that the hook received, and the tensor that it returned."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tenterhook import torch_internals as private
from tenterhook.doctor.observe.timeline import Timeline


@dataclass(slots=True)
class FiringSample:
    """A summary of the tensors that a hook received and returned in one firing."""

    #: the norms of the received tensor and of the returned tensor
    given: float
    returned: float
    equal: bool
    #: the factor by which the hook multiplied the tensor; None if the result is not a multiple of the tensor
    factor: float | None
    #: the largest absolute value in each tensor
    peaks: tuple[float, float]
    #: the loss scale when the hook fired
    scale: float
    #: the number of optimizer steps before the firing
    steps: int
    #: the number of elements of the tensor
    elements: int
    #: mask of the elements that the hook set to zero; None if the hook set no elements to zero
    zeroed: Tensor | None
    #: mask of the elements that the hook returned and that are not zero; None if `zeroed` is None
    left: Tensor | None = None

    @classmethod
    def at(cls, given: Tensor, returned: Tensor, timeline: Timeline) -> FiringSample:
        a, b = given.detach(), returned.detach()
        norm, made = float(a.norm()), float(b.norm())
        factor = _factor(a, b) if norm and made and math.isfinite(norm) and math.isfinite(made) else None
        if factor is not None and abs(made - abs(factor) * norm) > 1e-3 * made:
            factor = None
        factor = 0.0 if norm and not made else factor
        peaks = (_peak(a), _peak(b))
        zeroed = (b == 0) & (a != 0) if not factor else None
        if zeroed is not None and made and norm and _factor(a[b != 0], b[b != 0]) is None:
            zeroed = None  # the hook returns another gradient, which is zero in some places
        return cls(
            norm,
            made,
            bool(torch.equal(a, b)),
            factor,
            peaks,
            timeline.scale,
            timeline.steps,
            a.numel(),
            zeroed if zeroed is not None and bool(zeroed.any()) else None,
            b != 0 if zeroed is not None and bool(zeroed.any()) else None,
        )


#: the number of elements that are compared to determine whether one tensor is a multiple of another
_SAMPLE = 4096


def _factor(a: Tensor, b: Tensor) -> float | None:
    step = max(1, a.numel() // _SAMPLE)
    a, b = (t.reshape(-1)[::step].double() for t in (a, b))
    size = float((a * a).sum())
    ratio = float((a * b).sum()) / size if size else 0.0
    off = float((b - ratio * a).norm())
    return ratio if off <= 1e-5 * float(b.norm()) else None


def quotients(made: Tensor, given: Tensor) -> Tensor:
    """Return the factor by which each element of a sample was multiplied, or 1 if the element was zero."""
    step = max(1, given.numel() // _SAMPLE)
    a, b = (t.detach().reshape(-1)[::step] for t in (given, made))
    return torch.where(a == 0, torch.ones_like(a), b / a)


def summary(tensor: Tensor) -> str:
    """Return a string that is the same on two ranks if their tensors are equal."""
    numbers = tensor.detach().double()
    return f"{float(numbers.sum()).hex()} {float(numbers.norm()).hex()}"


def _peak(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor, math.inf)) if tensor.numel() else 0.0


def comparable(a: Tensor, b: Tensor) -> bool:
    return is_plain(a) and is_plain(b) and a.shape == b.shape and a.device == b.device


def is_plain(tensor: Tensor) -> bool:
    """Return True for an ordinary strided tensor of real numbers, whose values the exam can read."""
    real = type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout is torch.strided and not tensor.is_nested
    return real and not tensor.is_complex() and tensor.device.type != "meta" and not private.is_functorch(tensor)


def same(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a, b) or torch.equal(a.nan_to_num(), b.nan_to_num())
