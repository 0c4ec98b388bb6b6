"""Private operations on lists of tensors: one call, and on a GPU few kernels, however many tensors there are.

They are aliases, not functions: they are called in every step, and a Python call each would be paid there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

#: Return the 2-norm of each tensor, in the tensor's own dtype and on its device. Seen on torch 2.13.
foreach_norm: Callable[[list[Tensor]], Sequence[Tensor]] = torch._foreach_norm

#: Fill every tensor with zeros, in place. Seen on torch 2.13.
foreach_zero_: Callable[[list[Tensor]], None] = torch._foreach_zero_

#: Copy the second list's tensors into the first's, in place, converting dtypes. Seen on torch 2.13.
foreach_copy_: Callable[[list[Tensor], list[Tensor]], object] = torch._foreach_copy_
