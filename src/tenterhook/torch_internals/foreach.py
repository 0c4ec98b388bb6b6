"""Provide PyTorch's private operations on lists of tensors.

Each call launches only a few GPU kernels, however long the list is. The operations are aliases rather than functions,
because they run in every step and a Python call would add overhead. A torch without them runs a loop instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tenterhook.torch_internals.capabilities import find


def _norms(tensors: list[Tensor]) -> list[Tensor]:
    return [torch.linalg.vector_norm(tensor) for tensor in tensors]


def _zero(tensors: list[Tensor]) -> None:
    for tensor in tensors:
        tensor.zero_()


def _copy(into: list[Tensor], tensors: list[Tensor]) -> None:
    for old, new in zip(into, tensors, strict=True):
        old.copy_(new)


def _multiply(tensors: list[Tensor], by: Tensor | float | list[Tensor]) -> None:
    for at, tensor in enumerate(tensors):
        tensor.mul_(by[at] if isinstance(by, list) else by)


def _at_least(tensors: list[Tensor], number: float) -> None:
    for tensor in tensors:
        tensor.clamp_(min=number)


def _at_most(tensors: list[Tensor], number: float) -> None:
    for tensor in tensors:
        tensor.clamp_(max=number)


#: Return the 2-norm of each tensor, in the dtype and on the device of the tensor. Tested with torch 2.13.
foreach_norm: Callable[[list[Tensor]], Sequence[Tensor]] = find("torch._foreach_norm", otherwise=_norms)

#: Fill every tensor with zeros, in place. Tested with torch 2.13.
foreach_zero_: Callable[[list[Tensor]], None] = find("torch._foreach_zero_", otherwise=_zero)

#: Copy the tensors of the second list into the tensors of the first list, with dtype conversion. Tested with torch
#: 2.13.
foreach_copy_: Callable[[list[Tensor], list[Tensor]], object] = find("torch._foreach_copy_", otherwise=_copy)

#: Multiply each tensor in place by a number, by a tensor without dimensions, or by its own tensor without dimensions.
#: Tested with torch 2.13.
foreach_mul_: Callable[[list[Tensor], Tensor | float | list[Tensor]], object] = find(
    "torch._foreach_mul_", otherwise=_multiply
)

#: Raise the elements of each tensor in place to at least a number. Tested with torch 2.13.
foreach_clamp_min_: Callable[[list[Tensor], float], object] = find("torch._foreach_clamp_min_", otherwise=_at_least)

#: Lower the elements of each tensor in place to at most a number. Tested with torch 2.13.
foreach_clamp_max_: Callable[[list[Tensor], float], object] = find("torch._foreach_clamp_max_", otherwise=_at_most)
