"""This process among the others: its rank, the process group's device and store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from tenterhook.torch_internals import default_store


def rank() -> int:
    return dist.get_rank() if _has_group() else 0


def world_size() -> int:
    return dist.get_world_size() if _has_group() else 1


def launch_ranks() -> tuple[int, int]:
    """Return the rank among all processes and among those of this node, as torchrun set them.

    They are known before there is a process group, and when there is none any more.
    """
    return int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))


def _has_group() -> bool:
    return dist.is_available() and dist.is_initialized()


def device() -> torch.device:
    """Return the device that the process group takes tensors from."""
    backend = dist.get_backend()
    return torch.device("cuda", torch.cuda.current_device()) if backend == "nccl" else torch.device("cpu")


def store() -> Any:
    """Return the process group's own store."""
    return default_store()


def max_over_ranks(numbers: Sequence[int]) -> list[int]:
    """Return the largest of each number over all ranks."""
    found = torch.tensor(numbers, dtype=torch.int64, device=device())
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return found.tolist()
