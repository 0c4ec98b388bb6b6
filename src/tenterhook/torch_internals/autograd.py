"""Read private attributes of autograd: the running backward, graph nodes and tensor versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

#: Return the number of the running backward, or -1 if none is running. A forward that runs inside a backward is the
#: recomputation of a checkpoint. Tested with torch 2.13.
graph_task_id: Callable[[], int] = torch._C._current_graph_task_id

#: Return True if the running backward retains its graph. Tested with torch 2.13.
keeps_graph: Callable[[], bool] = torch._C._autograd._get_current_graph_task_keep_graph


#: Call a function at the end of the running backward. It must be called inside a backward. Tested with torch 2.13.
at_end_of_backward: Callable[[Callable[[], None]], None] = torch.autograd.Variable._execution_engine.queue_callback


#: Return the innermost saved_tensors_hooks, or None; pass False. A non-reentrant checkpoint sets such hooks in its
#: forward. Tested with torch 2.13.
saved_tensors_hooks: Callable[[bool], Any] = torch._C._autograd._top_saved_tensors_default_hooks


def checkpointed(made: Tensor) -> tuple[int, str] | None:
    """Return number and name of a graph node if a checkpoint will recompute `made`, or None.

    Tested with torch 2.13.
    """
    if not torch.is_grad_enabled():  # a reentrant checkpoint creates its node, then runs without grad
        return sequence_number() - 1, "CheckpointFunctionBackward"
    hooks = saved_tensors_hooks(False)
    if hooks is None or not hooks[0].__qualname__.startswith("_checkpoint_hook.") or made.grad_fn is None:
        return None
    return node_number(made.grad_fn), made.grad_fn.name()


def implementation(tensor: Tensor) -> int:
    """Return the address of the C++ tensor. Only `swap_tensors` changes it. Tested with torch 2.13."""
    return int(tensor._cdata)


#: Return the sequence number of the next graph node. Numbers increase in the forward. Tested with torch 2.13.
sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr


def node_number(node: torch.autograd.graph.Node) -> int:
    """Return the sequence number of a node. AccumulateGrad nodes have the largest number. Tested with torch 2.13."""
    return node._sequence_nr()


def view_base(tensor: Tensor) -> Tensor | None:
    """Return the base tensor if autograd treats this tensor as a view, or None. Tested with torch 2.13."""
    return tensor._base


def version_counter(tensor: Tensor) -> Tensor:
    """Return an empty tensor that shares the version counter of `tensor`, but does not keep its memory alive.

    Tested with torch 2.13.
    """
    probe = tensor.detach()
    probe.data = probe.new_empty(0)
    return probe


#: Return True if a tensor belongs to torch.func (vmap, grad), so that it must not be stored. Tested with torch 2.13.
is_functorch: Callable[[Tensor], bool] = torch._C._functorch.is_functorch_wrapped_tensor


#: Return how often a tensor was changed in place. It raises RuntimeError for an inference tensor. It is the C getter of
#: `Tensor._version`, so that a call does not enter a Python frame. Tested with torch 2.13.
read_version: Callable[[Tensor], int] = vars(torch._C.TensorBase)["_version"].__get__


def version(tensor: Tensor) -> int | None:
    """Return how often a tensor was changed in place, or None for an inference tensor. Tested with torch 2.13."""
    return None if tensor.is_inference() else tensor._version


def memory_users(tensor: Tensor) -> int:
    """Return how many tensors and views use the memory, or 0 if that is not known. Tested with torch 2.13."""
    if tensor.layout is not torch.strided:
        return 0
    return int(torch._C._storage_Use_Count(tensor.untyped_storage()._cdata))


def versions(tensors: list[Tensor]) -> list[int]:
    """Return how often each tensor was changed in place. Tested with torch 2.13."""
    return [tensor._version for tensor in tensors]


def set_versions(tensors: list[Tensor], versions: list[int]) -> None:
    """Set version counters, so that a backward through a graph that saved these tensors still works.

    Tested with torch 2.13.
    """
    torch._C._autograd._unsafe_set_version_counter(tuple(tensors), tuple(versions))


#: The function through which `backward` and `grad` call the autograd engine. Tested with torch 2.13.
ENGINE_ENTRY = (torch.autograd, "_engine_run_backward")


def accumulated_into(node: torch.autograd.graph.Node) -> Tensor | None:
    """Return the leaf to which an AccumulateGrad node adds, or None for any other node. Tested with torch 2.13."""
    return getattr(node, "variable", None)
