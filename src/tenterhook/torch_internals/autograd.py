"""Private attributes of autograd: the running backward, nodes of graphs, versions of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

#: Return the number of the running backward, -1 outside of one; inside a forward it means that a checkpoint recomputes.
#: Seen on torch 2.13.
graph_task_id: Callable[[], int] = torch._C._current_graph_task_id

#: Return True if the running backward leaves its graph for another one. Seen on torch 2.13.
keeps_graph: Callable[[], bool] = torch._C._autograd._get_current_graph_task_keep_graph


#: Run what it is given when the running backward ends; only inside a backward. Seen on torch 2.13.
at_end_of_backward: Callable[[Callable[[], None]], None] = torch.autograd.Variable._execution_engine.queue_callback


#: Given False, return the innermost saved_tensors_hooks or None; a non-reentrant checkpoint has some in its forward.
#: Seen on torch 2.13.
saved_tensors_hooks: Callable[[bool], Any] = torch._C._autograd._top_saved_tensors_default_hooks


def checkpointed(made: Tensor) -> tuple[int, str] | None:
    """Return number and name of a node that shows that a checkpoint will compute `made` again, or None.

    Seen on torch 2.13.
    """
    if not torch.is_grad_enabled():  # a reentrant one makes its node, then runs without grad
        return sequence_number() - 1, "CheckpointFunctionBackward"
    hooks = saved_tensors_hooks(False)
    if hooks is None or not hooks[0].__qualname__.startswith("_checkpoint_hook.") or made.grad_fn is None:
        return None
    return node_number(made.grad_fn), made.grad_fn.name()


def implementation(tensor: Tensor) -> int:
    """Return the address behind the Python object; only `swap_tensors` changes it. Seen on torch 2.13."""
    return int(tensor._cdata)


#: Return the number that the next node of a graph will get; numbers grow as the forward goes. Seen on torch 2.13.
sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr


def node_number(node: torch.autograd.graph.Node) -> int:
    """Return a node's number; AccumulateGrad nodes have the largest number there is. Seen on torch 2.13."""
    return node._sequence_nr()


def view_base(tensor: Tensor) -> Tensor | None:
    """Return the tensor that this one is a view of, for autograd. Seen on torch 2.13."""
    return tensor._base


def version_counter(tensor: Tensor) -> Tensor:
    """Return an empty tensor that shares the version counter but not the memory, so that it may be kept.

    Seen on torch 2.13.
    """
    probe = tensor.detach()
    probe.data = probe.new_empty(0)
    return probe


#: Return True if a tensor belongs to torch.func (vmap, grad), where nothing may be kept. Seen on torch 2.13.
is_functorch: Callable[[Tensor], bool] = torch._C._functorch.is_functorch_wrapped_tensor


#: Return how often a tensor was changed in place; raises RuntimeError for an inference tensor, as the attribute does.
#: The C getter of `Tensor._version`, so that no Python frame is entered. Seen on torch 2.13.
read_version: Callable[[Tensor], int] = vars(torch._C.TensorBase)["_version"].__get__


def version(tensor: Tensor) -> int | None:
    """Return how often a tensor was changed in place; None for an inference tensor. Seen on torch 2.13."""
    return None if tensor.is_inference() else tensor._version


def memory_users(tensor: Tensor) -> int:
    """Return how many tensors and views use its memory; 0 where that is not known. Seen on torch 2.13."""
    if tensor.layout is not torch.strided:
        return 0
    return int(torch._C._storage_Use_Count(tensor.untyped_storage()._cdata))


def versions(tensors: list[Tensor]) -> list[int]:
    """Return how often each tensor was changed in place. Seen on torch 2.13."""
    return [tensor._version for tensor in tensors]


def set_versions(tensors: list[Tensor], versions: list[int]) -> None:
    """Set the version counters back, so that a graph which saved these tensors may still be run. Seen on torch 2.13."""
    torch._C._autograd._unsafe_set_version_counter(tuple(tensors), tuple(versions))


#: The function by which Python enters the engine, for `backward` and `grad` alike. Seen on torch 2.13.
ENGINE_ENTRY = (torch.autograd, "_engine_run_backward")


def accumulated_into(node: torch.autograd.graph.Node) -> Tensor | None:
    """Return the leaf that a node adds its gradient to; None if the node does not end at one. Seen on torch 2.13."""
    return getattr(node, "variable", None)
