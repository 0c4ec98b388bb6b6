"""This process among all: its rank, the process group's device and store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from tenterhook.torch_internals import default_store


def rank() -> int:
    return dist.get_rank() if _several() else 0


def world_size() -> int:
    return dist.get_world_size() if _several() else 1


def launched() -> tuple[int, int]:
    """This process among all, and among those of its node, as torchrun has started it; whether or not, or no longer,
    there is a process group."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))


def _several() -> bool:
    return dist.is_available() and dist.is_initialized()


def device() -> torch.device:
    """Where the process group takes tensors from."""
    backend = dist.get_backend()
    return torch.device("cuda", torch.cuda.current_device()) if backend == "nccl" else torch.device("cpu")


def store() -> Any:
    """Return the process group's own store."""
    return default_store()


def largest(numbers: Sequence[int]) -> list[int]:
    found = torch.tensor(numbers, dtype=torch.int64, device=device())
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return found.tolist()
