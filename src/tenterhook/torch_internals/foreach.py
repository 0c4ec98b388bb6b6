"""Provide PyTorch's private operations on lists of tensors.

Each call launches only a few GPU kernels, however long the list is. The operations are aliases rather than functions,
because they run in every step and a Python call would add overhead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

#: Return the 2-norm of each tensor, in the dtype and on the device of the tensor. Tested with torch 2.13.
foreach_norm: Callable[[list[Tensor]], Sequence[Tensor]] = torch._foreach_norm

#: Fill every tensor with zeros, in place. Tested with torch 2.13.
foreach_zero_: Callable[[list[Tensor]], None] = torch._foreach_zero_

#: Copy the tensors of the second list into the tensors of the first list, with dtype conversion. Tested with torch
#: 2.13.
foreach_copy_: Callable[[list[Tensor], list[Tensor]], object] = torch._foreach_copy_
