"""Read private attributes of FSDP2, pipelines and the process group."""

from __future__ import annotations

import gc
import sys
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from tenterhook.torch_internals.capabilities import Capability, needed_for


@needed_for(Capability.GATHERED, otherwise=False)
def reduces_in_other_dtype(model: nn.Module) -> bool:
    """Return True if FSDP2 reduces gradients in a dtype other than the dtype of the backward pass.

    The mixed-precision policy is stored only in a private attribute. Tested with torch 2.13.
    """
    from torch.distributed.fsdp import FSDPModule

    policies = [m._get_fsdp_state()._mp_policy for m in model.modules() if isinstance(m, FSDPModule)]
    return any(p.reduce_dtype is not None and p.reduce_dtype != p.param_dtype for p in policies)


@needed_for(Capability.SHARDED_EXAM, otherwise=[])
def shard_groups(model: nn.Module) -> list[tuple[Any, list[Tensor]]]:
    """Return the parameter groups of FSDP2, each with its sharded parameters. Tested with torch 2.13."""
    from torch.distributed.fsdp import FSDPModule

    states = [m._get_fsdp_state() for m in model.modules() if isinstance(m, FSDPModule)]
    groups = [group for state in states for group in state._fsdp_param_groups]
    return [(group, [one.sharded_param for one in group.fsdp_params]) for group in groups]


@needed_for(Capability.SHARDED_EXAM, otherwise=True)
def syncs(group: Any) -> bool:
    """Return True if the next backward pass reduces the gradients of a group from `shard_groups`.

    Tested with torch 2.13.
    """
    return bool(group.reduce_grads)


def infers_shapes() -> bool:
    """Return True if a pipeline stage is running with empty tensors to infer the shapes of its outputs.

    This is visible only in the names of the calling functions. Tested with torch 2.13.
    """
    if getattr(torch.distributed, "pipelining", None) is None:
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_forward_metadata_inference":
            return True
        frame = frame.f_back
    return False


def splits_backward(model: nn.Module) -> bool:
    """Return True if a pipeline schedule splits the backward pass of this stage into two parts.

    The second part computes the gradients of the parameters much later.
    """
    pipelining = getattr(torch.distributed, "pipelining", None)
    if pipelining is None:
        return False
    # Read the type: isinstance would access the object behind a weak proxy, which may no longer exist.
    parts = [one for one in gc.get_objects() if str(type(one).__module__).startswith(pipelining.__name__)]
    stages = [one for one in parts if getattr(one, "submod", None) is model]
    return bool(stages) and _is_split(stages[0], parts)


@needed_for(Capability.PIPELINES)
def _is_split(stage: Any, parts: list[Any]) -> bool:
    """Return True if the schedule of a stage splits backward passes.

    A stage has no reference to its schedule, so all schedules in the process are searched. Tested with torch 2.13.
    """
    from torch.distributed.pipelining import schedules

    if isinstance(stage, torch.distributed.pipelining.PipelineStage):
        _ = stage._forward_metadata_inference  # `infers_shapes` relies on it
    kinds = (schedules.ScheduleInterleavedZeroBubble, schedules.ScheduleZBVZeroBubble, schedules.ScheduleDualPipeV)
    return any(stage in one._stages for one in parts if isinstance(one, kinds))


def creates_optimizer_state() -> bool:
    """Return True if distributed checkpointing is running an optimizer's step only to create its state.

    This is visible only in the names of the calling functions. Tested with torch 2.13.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_init_optim_state":
            return True
        frame = frame.f_back
    return False


@needed_for(Capability.RANKS)
def default_store() -> Any:
    """Return the store of the default process group. Tested with torch 2.13."""
    return torch.distributed.distributed_c10d._get_default_store()
