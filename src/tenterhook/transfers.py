"""Copy numbers to a device without waiting for the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def send_to_device(numbers: Sequence[float], device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Return numbers as a tensor on a device.

    `torch.tensor(numbers, device=device)` would wait until the device has done all its earlier work.
    """
    return torch.tensor(numbers, dtype=dtype, device="cpu").to(device, non_blocking=True)
