"""Every private attribute of torch that tenterhook touches: one function each, read and run on torch 2.13.

`tests/rig/test_torch_private.py` fails when torch changes what one of these stands on.
"""

from __future__ import annotations

import gc
import itertools
import sys
from collections import OrderedDict
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_module
from torch.optim import optimizer as optimizer_module

#: the number of the running backward, -1 outside of one; inside a forward it means a checkpoint recomputes
graph_task_id: Callable[[], int] = torch._C._current_graph_task_id


#: whether the running backward leaves its graph for another one. 2.13
keeps_graph: Callable[[], bool] = torch._C._autograd._get_current_graph_task_keep_graph


def at_end_of_backward(call: Callable[[], None]) -> None:
    """Run `call` when the running backward ends. 2.13: only inside a backward."""
    torch.autograd.Variable._execution_engine.queue_callback(call)


#: given False, the innermost saved_tensors_hooks or None; a non-reentrant checkpoint has some in its forward. 2.13
saved_tensors_hooks: Callable[[bool], Any] = torch._C._autograd._top_saved_tensors_default_hooks


def checkpointed(made: Tensor) -> tuple[int, str] | None:
    """Number and name of a node by which the graph shows that a checkpoint will make this again, or nothing. 2.13."""
    if not torch.is_grad_enabled():  # a reentrant one makes its node, then runs without grad
        return sequence_number() - 1, "CheckpointFunctionBackward"
    hooks = saved_tensors_hooks(False)
    if hooks is None or not hooks[0].__qualname__.startswith("_checkpoint_hook.") or made.grad_fn is None:
        return None
    return node_number(made.grad_fn), made.grad_fn.name()


def child_modules(module: nn.Module) -> dict[str, nn.Module | None]:
    return module._modules


def own_parameters(module: nn.Module) -> dict[str, Tensor | None]:
    """Not `named_parameters`: FSDP2 and parametrizations swap entries of this dict. 2.13."""
    return module._parameters  # type: ignore[return-value]


def implementation(tensor: Tensor) -> int:
    """The address behind the Python object; `swap_tensors` changes it and nothing else does. 2.13."""
    return int(tensor._cdata)


#: the number the next node of a graph will get; numbers grow as the forward goes. 2.13
sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr


def node_number(node: torch.autograd.graph.Node) -> int:
    """When a node was made; AccumulateGrad nodes have the largest number there is. 2.13."""
    return node._sequence_nr()


def view_base(tensor: Tensor) -> Tensor | None:
    """The tensor this one is a view of, for autograd. 2.13."""
    return tensor._base


def version_counter(tensor: Tensor) -> Tensor:
    """An empty tensor that shares the version counter but not the memory, so that it may be kept. 2.13."""
    probe = tensor.detach()
    probe.data = probe.new_empty(0)
    return probe


#: whether a tensor belongs to torch.func (vmap, grad), where nothing may be kept. 2.13
is_functorch: Callable[[Tensor], bool] = torch._C._functorch.is_functorch_wrapped_tensor


def version(tensor: Tensor) -> int | None:
    """How often it was changed in place; an inference tensor does not count. 2.13."""
    return None if tensor.is_inference() else tensor._version


def memory_users(tensor: Tensor) -> int:
    """How many tensors and views use its memory; 0 where that cannot be told. 2.13."""
    if tensor.layout is not torch.strided:
        return 0
    return int(torch._C._storage_Use_Count(tensor.untyped_storage()._cdata))


def versions(tensors: list[Tensor]) -> list[int]:
    return [t._version for t in tensors]


def set_versions(tensors: list[Tensor], versions: list[int]) -> None:
    """Say that tensors are what they were, so that a graph which holds them may still be run. 2.13."""
    torch._C._autograd._unsafe_set_version_counter(tuple(tensors), tuple(versions))


#: where Python enters the engine, for `backward` and `grad` alike. 2.13
ENGINE_ENTRY = (torch.autograd, "_engine_run_backward")
#: where `clip_grad_norm_` scales the gradients, however it was imported. 2.13
CLIP_ENTRY = (torch.nn.utils.clip_grad, "_clip_grads_with_norm_")
#: where `torch.func.functional_call` puts other tensors in. 2.13
FUNCTIONAL_ENTRY = (torch.nn.utils.stateless, "_functional_call")
#: what sees the output of each call of a module with full backward hooks; it keeps the module. 2.13
OUTPUT_ENTRY = (torch.utils.hooks.BackwardHook, "setup_output_hook")


def accumulated_into(node: torch.autograd.graph.Node) -> Tensor | None:
    """The leaf that a node adds its gradient to; None if the node does not end at a leaf. 2.13."""
    return getattr(node, "variable", None)


def registered_in(handle: Any) -> dict[int, Any] | None:
    """The dict that a RemovableHandle would remove its hook from; None if that is gone. 2.13."""
    hooks: dict[int, Any] | None = handle.hooks_dict_ref()
    return hooks


HOOK_SLOTS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def tensor_hooks(tensor: Tensor, slot: str) -> OrderedDict[int, Any] | None:
    return getattr(tensor, slot)  # type: ignore[no-any-return]


def reinstall_tensor_hooks(tensor: Tensor) -> None:
    """Tie the hook dicts to the tensor again: `swap_tensors` leaves them listed but dead. Harmless twice. 2.13."""
    for slot in HOOK_SLOTS:
        hooks = getattr(tensor, slot)
        if hooks is not None:
            setattr(tensor, slot, hooks)


def drop_empty_tensor_hooks(tensor: Tensor) -> None:
    """Removing the last hook leaves an empty dict where there was None. 2.13."""
    for slot in HOOK_SLOTS:
        hooks = getattr(tensor, slot)
        if hooks is not None and not hooks:
            setattr(tensor, slot, None)


def put_in_order(hooks: dict[int, Any], keys: list[int]) -> None:
    """Rearrange a hook dict. A tensor's is read in the order of insertion, which move_to_end does not change. 2.13."""
    items = [(key, hooks[key]) for key in keys]
    hooks.clear()
    hooks.update(items)


#: the dicts of a module that hold hooks, by the name of the function that fills them. 2.13
MODULE_SLOTS = {
    "_forward_pre_hooks": "register_forward_pre_hook",
    "_forward_hooks": "register_forward_hook",
    "_backward_pre_hooks": "register_full_backward_pre_hook",
    "_backward_hooks": "register_full_backward_hook",
    "_state_dict_pre_hooks": "register_state_dict_pre_hook",
    "_state_dict_hooks": "register_state_dict_post_hook",
    "_load_state_dict_pre_hooks": "register_load_state_dict_pre_hook",
    "_load_state_dict_post_hooks": "register_load_state_dict_post_hook",
}


def registered_by(module: nn.Module) -> dict[str, str]:
    """The dicts of this module: its backward hooks are of the legacy kind or of the full one, never both. 2.13."""
    if module._is_full_backward_hook is False:
        return MODULE_SLOTS | {"_backward_hooks": "register_backward_hook"}
    return MODULE_SLOTS


def count_hooks(owner: Any, register: str) -> int | None:
    """How many hooks a register function has put on a module; None of other owners. 2.13."""
    slot = next((slot for slot, by in MODULE_SLOTS.items() if by == register), None)
    hooks = getattr(owner, slot, None) if slot is not None and isinstance(owner, nn.Module) else None
    return None if hooks is None else len(hooks)


_unnumbered = itertools.count(-1, -1)


def insert_hook(hooks: dict[int, Any], fn: Callable[..., Any]) -> Callable[[], None]:
    """Put a hook into a dict without using up a number, so that others get those they would have got. 2.13.

    Returns what takes it out again.
    """
    key = next(_unnumbered)
    hooks[key] = fn
    return lambda: hooks.pop(key, None) and None


#: the hooks on every module's call. 2.13
EVERY_CALL: dict[int, Any] = module_module._global_forward_pre_hooks
#: the hooks on every optimizer's step, before it and after it. 2.13
EVERY_STEP: tuple[dict[int, Any], dict[int, Any]] = (
    optimizer_module._global_optimizer_pre_hooks,
    optimizer_module._global_optimizer_post_hooks,
)


def forget_hook(module: nn.Module, slot: str, key: int) -> None:
    """Remove a hook whose handle is not at hand, with what is noted of it beside. 2.13."""
    for name in (slot, f"{slot}_with_kwargs", f"{slot}_always_called"):
        getattr(module, name, {}).pop(key, None)


#: likewise of an optimizer. 2.13
OPTIMIZER_SLOTS = {
    "_optimizer_step_pre_hooks": "register_step_pre_hook",
    "_optimizer_step_post_hooks": "register_step_post_hook",
    "_optimizer_state_dict_pre_hooks": "register_state_dict_pre_hook",
    "_optimizer_state_dict_post_hooks": "register_state_dict_post_hook",
    "_optimizer_load_state_dict_pre_hooks": "register_load_state_dict_pre_hook",
    "_optimizer_load_state_dict_post_hooks": "register_load_state_dict_post_hook",
}


def hooks_in(owner: object, slot: str) -> dict[int, Any]:
    hooks: dict[int, Any] | None = getattr(owner, slot, None)
    return {} if hooks is None else hooks


def is_only(hooks: dict[int, Any]) -> bool:
    return len(hooks) == 1


def is_before_others(hooks: dict[int, Any], key: int) -> bool:
    """Whether something was registered after the hook of that handle id."""
    return key in hooks and next(reversed(hooks), None) != key


def pending_scale(optimizer: torch.optim.Optimizer) -> Tensor | None:
    """The factor a fused optimizer would still divide its gradients by; GradScaler leaves it there. 2.13."""
    return getattr(optimizer, "grad_scale", None)


def clear_scale(optimizer: torch.optim.Optimizer) -> None:
    optimizer.grad_scale = None  # type: ignore[attr-defined]


def found_inf(optimizer: torch.optim.Optimizer) -> Tensor | None:
    """1 where a fused optimizer is about to skip its step; GradScaler leaves it there. 2.13."""
    return getattr(optimizer, "found_inf", None)


#: children of wrappers that are not part of a name. 2.13
TRANSPARENT = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")


def reduced_apart(model: nn.Module) -> bool:
    """Whether FSDP2 reduces gradients in another dtype than they are made in.

    torch 2.13: its policy has no public name.
    """
    from torch.distributed.fsdp import FSDPModule

    policies = [m._get_fsdp_state()._mp_policy for m in model.modules() if isinstance(m, FSDPModule)]
    return any(p.reduce_dtype is not None and p.reduce_dtype != p.param_dtype for p in policies)


def shard_groups(model: nn.Module) -> list[tuple[Any, list[Tensor]]]:
    """The groups that FSDP2 shards parameters in, each with its shards. torch 2.13: they have no public name."""
    from torch.distributed.fsdp import FSDPModule

    states = [m._get_fsdp_state() for m in model.modules() if isinstance(m, FSDPModule)]
    groups = [group for state in states for group in state._fsdp_param_groups]
    return [(group, [one.sharded_param for one in group.fsdp_params]) for group in groups]


def syncs(group: Any) -> bool:
    """Whether the next backward reduces the gradients of a group of `shard_groups`. 2.13."""
    return bool(group.reduce_grads)


def infers_shapes() -> bool:
    """Whether a pipeline's stage is being tried with empty tensors, to learn the shapes that it gives.

    torch 2.13: nothing says so but who calls.
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
    """Whether a pipeline's schedule runs this stage's backward in two halves, the parameters' much later.

    torch 2.13: a stage does not know its schedule, so the schedules that there are are asked for their stages.
    """
    if getattr(torch.distributed, "pipelining", None) is None:
        return False
    from torch.distributed.pipelining import schedules

    kinds = (schedules.ScheduleInterleavedZeroBubble, schedules.ScheduleZBVZeroBubble, schedules.ScheduleDualPipeV)
    # By type: isinstance asks a proxy what it stands for, which may be dead.
    found = (one for one in gc.get_objects() if issubclass(type(one), kinds))
    return any(stage.submod is model for one in found for stage in one._stages)
