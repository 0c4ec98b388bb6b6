"""Copy numbers between the host and a device without waiting for the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def send_to_device(numbers: Sequence[float], device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Return numbers as a tensor on a device.

    `torch.tensor(numbers, device=device)` would wait until the device has done all its earlier work.
    """
    return torch.tensor(numbers, dtype=dtype, device="cpu").to(device, non_blocking=True)


def send_to_host(values: Tensor) -> Callable[[], Tensor]:
    """Start copying a tensor to the host. Return a function that waits for the copy and returns it."""
    if values.device.type == "cpu":
        return lambda: values
    pinned = values.device.type == "cuda"
    host = torch.empty_like(values, device="cpu", pin_memory=pinned).copy_(values, non_blocking=True)
    sent = torch.Event(values.device)
    sent.record()

    def wait() -> Tensor:
        sent.synchronize()
        return host

    return wait
