"""Read private attributes of autograd: the running backward pass, graph nodes and tensor versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

#: Return the id of the running backward pass, or -1 if none is running. A forward pass that runs inside a backward pass
#: is the recomputation of a checkpoint. Tested with torch 2.13.
graph_task_id: Callable[[], int] = torch._C._current_graph_task_id

#: Return True if the running backward pass retains its graph. Tested with torch 2.13.
keeps_graph: Callable[[], bool] = torch._C._autograd._get_current_graph_task_keep_graph


#: Schedule a function to be called at the end of the running backward pass. Call this only inside a backward pass.
#: Tested with torch 2.13.
at_end_of_backward: Callable[[Callable[[], None]], None] = torch.autograd.Variable._execution_engine.queue_callback


#: Return the innermost saved_tensors_hooks, or None. The argument must be False. A non-reentrant checkpoint sets such
#: hooks in its forward pass. Tested with torch 2.13.
saved_tensors_hooks: Callable[[bool], Any] = torch._C._autograd._top_saved_tensors_default_hooks


def checkpointed(made: Tensor) -> tuple[int, str] | None:
    """Return the sequence number and the name of a graph node if a checkpoint will recompute `made`, otherwise None.

    Tested with torch 2.13.
    """
    if not torch.is_grad_enabled():  # a reentrant checkpoint creates its node and then runs with gradients disabled
        return sequence_number() - 1, "CheckpointFunctionBackward"
    hooks = saved_tensors_hooks(False)
    if hooks is None or not hooks[0].__qualname__.startswith("_checkpoint_hook.") or made.grad_fn is None:
        return None
    return node_number(made.grad_fn), made.grad_fn.name()


def implementation(tensor: Tensor) -> int:
    """Return the address of the C++ tensor, which only `swap_tensors` changes. Tested with torch 2.13."""
    return int(tensor._cdata)


#: Return the sequence number of the next graph node. Numbers increase during the forward pass. Tested with torch 2.13.
sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr


def node_number(node: torch.autograd.graph.Node) -> int:
    """Return a node's sequence number (for AccumulateGrad nodes, the maximum integer). Tested with torch 2.13."""
    return node._sequence_nr()


def view_base(tensor: Tensor) -> Tensor | None:
    """Return the base tensor if autograd treats this tensor as a view, otherwise None. Tested with torch 2.13."""
    return tensor._base


def version_counter(tensor: Tensor) -> Tensor:
    """Return an empty tensor that shares the version counter of `tensor` without keeping that tensor's memory alive.

    Tested with torch 2.13.
    """
    probe = tensor.detach()
    probe.data = probe.new_empty(0)
    return probe


#: Return True if a tensor is a wrapper from torch.func (vmap, grad), which must not be stored. Tested with torch 2.13.
is_functorch: Callable[[Tensor], bool] = torch._C._functorch.is_functorch_wrapped_tensor


#: Return how many times a tensor was changed in place, or raise RuntimeError for an inference tensor. This is the C
#: getter of `Tensor._version`, so a call creates no Python frame. Tested with torch 2.13.
read_version: Callable[[Tensor], int] = vars(torch._C.TensorBase)["_version"].__get__


def version(tensor: Tensor) -> int | None:
    """Return how many times a tensor was changed in place, or None for an inference tensor. Tested with torch 2.13."""
    return None if tensor.is_inference() else tensor._version


def memory_users(tensor: Tensor) -> int:
    """Return how many tensors and views use the memory of a tensor, or 0 if unknown. Tested with torch 2.13."""
    if tensor.layout is not torch.strided:
        return 0
    return int(torch._C._storage_Use_Count(tensor.untyped_storage()._cdata))


def versions(tensors: list[Tensor]) -> list[int]:
    """Return how many times each tensor was changed in place. Tested with torch 2.13."""
    return [tensor._version for tensor in tensors]


def set_versions(tensors: list[Tensor], versions: list[int]) -> None:
    """Set version counters, so that a backward pass through a graph that saved these tensors does not fail.

    Tested with torch 2.13.
    """
    torch._C._autograd._unsafe_set_version_counter(tuple(tensors), tuple(versions))


#: The function through which `backward` and `grad` call the autograd engine. Tested with torch 2.13.
ENGINE_ENTRY = (torch.autograd, "_engine_run_backward")


def accumulated_into(node: torch.autograd.graph.Node) -> Tensor | None:
    """Return the leaf tensor of an AccumulateGrad node, or None for other nodes. Tested with torch 2.13."""
    return getattr(node, "variable", None)
