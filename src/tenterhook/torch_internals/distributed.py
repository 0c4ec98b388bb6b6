"""Read private attributes of FSDP2, pipelines and the process group."""

from __future__ import annotations

import gc
import sys
from datetime import timedelta
from enum import Enum, auto
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
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
    """Return the parameter groups of FSDP2, each with its sharded parameters. Tested with torch 2.10 and 2.13."""
    from torch.distributed.fsdp import FSDPModule

    states = [m._get_fsdp_state() for m in model.modules() if isinstance(m, FSDPModule)]
    groups = [group for state in states for group in _groups_of(state)]
    return [(group, [one.sharded_param for one in group.fsdp_params]) for group in groups]


def _groups_of(state: Any) -> list[Any]:
    """Return the parameter groups of a module's state. In torch 2.11 and earlier, there is at most one."""
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    return [state._fsdp_param_group] if state._fsdp_param_group is not None else []


@needed_for(Capability.SHARDED_EXAM, otherwise=True)
def syncs(group: Any) -> bool:
    """Return True if the next backward pass reduces the gradients of a group from `shard_groups`.

    Tested with torch 2.13.
    """
    return bool(group.reduce_grads)


#: the method with which a stage infers shapes, from torch 2.12 on and before
_INFERENCE = ("_forward_metadata_inference", "_shape_inference")


def infers_shapes() -> bool:
    """Return True if a pipeline stage is running with empty tensors to infer the shapes of its outputs.

    This is visible only in the names of the calling functions. Tested with torch 2.10 and 2.13.
    """
    if getattr(torch.distributed, "pipelining", None) is None:
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in _INFERENCE:
            return True
        frame = frame.f_back
    return False


def splits_backward(model: nn.Module) -> bool:
    """Return True if a pipeline schedule splits the backward pass of a stage in this model into two parts.

    The second part computes the gradients of the parameters much later.
    """
    stages, parts = _stages(model)
    return any(_is_split(stage, parts) for stage in stages)


def is_stage(model: nn.Module) -> bool:
    """Return True if this module, or a part of it, is the stage of a pipeline."""
    return bool(_stages(model)[0])


def _stages(model: nn.Module) -> tuple[list[Any], list[Any]]:
    """Return the pipeline stages whose modules are in the model, and all objects of torch's pipelines."""
    pipelining = getattr(torch.distributed, "pipelining", None)
    if pipelining is None:
        return [], []
    # Read the type: isinstance would access the object behind a weak proxy, which may no longer exist.
    parts = [one for one in gc.get_objects() if str(type(one).__module__).startswith(pipelining.__name__)]
    modules = set(map(id, model.modules()))
    return [one for one in parts if id(getattr(one, "submod", None)) in modules], parts


@needed_for(Capability.PIPELINES)
def _is_split(stage: Any, parts: list[Any]) -> bool:
    """Return True if the schedule of a stage splits backward passes.

    A stage has no reference to its schedule, so all schedules in the process are searched. Tested with torch 2.13.
    """
    from torch.distributed.pipelining import schedules

    known = any(hasattr(stage, name) for name in _INFERENCE)  # `infers_shapes` relies on it
    if isinstance(stage, torch.distributed.pipelining.PipelineStage) and not known:
        raise AttributeError(_INFERENCE[0])
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


class ReduceKind(Enum):
    """How a collective combines the tensors of the ranks."""

    SUM = auto()
    MAX = auto()


def is_simulated() -> bool:
    """Return True if the process group is a fake one, in which this process is the only one that exists."""
    return dist.is_initialized() and "fake" in dist.get_backend_config()


def device_of_reduction(device: torch.device) -> torch.device:
    """Return the device on which a connection reduces tensors of a device: the device itself, or the CPU."""
    stays = is_simulated() or (device.type == "cuda" and "nccl" in dist.get_backend_config())
    return device if stays else torch.device("cpu")


class Connection:
    """Connections between some ranks that no process group of the program uses.

    Tensors on the CPU travel over gloo. Tensors on a CUDA device travel over NCCL if the program uses it. Tensors on
    any other device are copied to the CPU and back. A collective that does not end in time raises a RuntimeError.

    torch can make a process group only with a name that all ranks count alike, and the program may use it by mistake.
    The backends are public classes, but their constructors are not documented. Tested with torch 2.13.
    """

    def __init__(self, store: Any, key: str, position: int, size: int, patience: float) -> None:
        self._place = (store, key, position, size)
        self._patience = timedelta(seconds=patience)
        self._backends: dict[str, Any] = {} if is_simulated() else {"cpu": self._make("cpu")}

    @needed_for(Capability.RANKS)
    def _make(self, device: str) -> Any:
        store, key, position, size = self._place
        inside = dist.distributed_c10d.PrefixStore(f"{key}/{device}", store)
        if device == "cuda":
            nccl = dist.ProcessGroupNCCL.Options()
            nccl._timeout = self._patience
            return dist.ProcessGroupNCCL(inside, position, size, nccl)
        return dist.ProcessGroupGloo(inside, position, size, timeout=self._patience)

    def reduce(self, tensor: Tensor, kind: ReduceKind) -> Tensor:
        """Reduce a tensor over the ranks. The given tensor may be overwritten."""
        if is_simulated():
            return tensor
        device = device_of_reduction(tensor.device).type
        sent = tensor if tensor.device.type == device else tensor.to(device)
        if device not in self._backends:
            self._backends[device] = self._make(device)
        options: Any = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.SUM if kind is ReduceKind.SUM else dist.ReduceOp.MAX
        options.timeout = self._patience
        self._backends[device].allreduce([sent], options).wait()
        return sent.to(tensor.device)

    def close(self) -> None:
        """Close the connections, so that a rank that still uses them notices it at once."""
        self._backends.clear()


def is_filled_by_ddp(parameter: Tensor) -> bool:
    """Return True if DDP may give a parameter the gradient of other ranks, although this rank does not use it.

    No reference leads from a parameter to its DDP module, so all objects of the process are searched. Call this only
    before a fault is reported.
    """
    allowed = [one for one in _ddp_modules() if one.find_unused_parameters or one.static_graph]
    return any(one is parameter for wrapper in allowed for one in wrapper.parameters())


def ddp_around(model: nn.Module) -> list[Any]:
    """Return the DDP modules that contain a model. A module has no reference to the one that wraps it."""
    return [one for one in _ddp_modules() if any(part is model for part in one.modules())]


def _ddp_modules() -> list[Any]:
    if not dist.is_available() or not dist.is_initialized():
        return []
    return [one for one in gc.get_objects() if issubclass(type(one), nn.parallel.DistributedDataParallel)]


@needed_for(Capability.RANKS)
def root_mesh(mesh: Any) -> Any:
    """Return the mesh from which a mesh was cut, or the mesh itself. Tested with torch 2.13."""
    return mesh._get_root_mesh()


@needed_for(Capability.RANKS, otherwise=False)
def uses_join(module: Any) -> bool:
    """Return True if a DDP module is inside `join()`. Tested with torch 2.13."""
    return bool(module._join_config.enable)
