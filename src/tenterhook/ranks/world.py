"""Return the rank of this process, and the store of its process group."""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch.distributed as dist

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


def warn_once(text: str, *, first: int = 0, stacklevel: int = 3) -> None:
    """Warn of something that happens on all ranks alike. Only the rank `first` prints it."""
    if rank() == first:
        warnings.warn(text, RuntimeWarning, stacklevel=stacklevel)


def _has_group() -> bool:
    return dist.is_available() and dist.is_initialized()


def store() -> Any:
    """Return the store of the process group."""
    return default_store()
