"""Return the rank of this process, and the device and the store of its process group."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tenterhook.torch_internals import default_store


def rank() -> int:
    return dist.get_rank() if _has_group() else 0


def world_size() -> int:
    return dist.get_world_size() if _has_group() else 1


def launch_ranks() -> tuple[int, int]:
    """Return the global rank and the local rank that torchrun set.

    Both are available even before the process group is created and after it is destroyed.
    """
    return int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))


def warn_once(text: str, *, stacklevel: int = 3) -> None:
    """Warn of something that happens on all ranks alike. Only the first rank prints it."""
    if rank() == 0:
        warnings.warn(text, RuntimeWarning, stacklevel=stacklevel)


def _has_group() -> bool:
    return dist.is_available() and dist.is_initialized()


def device() -> torch.device:
    """Return the device that the collectives of the process group use."""
    backend = dist.get_backend()
    return torch.device("cuda", torch.cuda.current_device()) if backend == "nccl" else torch.device("cpu")


def store() -> Any:
    """Return the store of the process group."""
    return default_store()


def sum_over_ranks(numbers: Tensor) -> Tensor:
    """Return the sum of a tensor over all ranks."""
    found = numbers.to(device(), copy=True)
    dist.all_reduce(found)
    return found


def max_over_ranks(numbers: Sequence[int]) -> list[int]:
    """Return the maximum of each number over all ranks."""
    found = torch.tensor(numbers, dtype=torch.int64, device=device())
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return found.tolist()
