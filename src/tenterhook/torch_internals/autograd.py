"""Read private attributes of autograd: the running backward pass, graph nodes and tensor versions."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import FrameType, GeneratorType
from typing import Any

import torch
from torch import Tensor

from tenterhook.torch_internals.capabilities import Capability, entry, find, look_for, require


def _outside_checkpoints(_: bool = False) -> int:
    """Refuse a call inside an activation checkpoint, because it looks like its recomputation."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            require(Capability.CHECKPOINTS)
        frame = frame.f_back
    return -1


def _no_saved_tensors_hooks(_: bool) -> None:
    _outside_checkpoints()


#: Return the id of the running backward pass, or -1 if none is running. A forward pass that runs inside a backward pass
#: is the recomputation of a checkpoint. Tested with torch 2.13.
graph_task_id: Callable[[], int] = find(
    "torch._C._current_graph_task_id",
    Capability.CHECKPOINTS,
    Capability.GRAD_INPUT,
    Capability.TAPS,
    Capability.NO_OPTIMIZER,
    Capability.COMPILED,
    Capability.DOCTOR,
    Capability.RERUN,
    otherwise=_outside_checkpoints,
)

#: Return True if the running backward pass retains its graph. Tested with torch 2.13.
keeps_graph: Callable[[], bool] = find(
    "torch._C._autograd._get_current_graph_task_keep_graph", Capability.COMPILED, otherwise=bool
)


def _never(_: Callable[[], None]) -> None:
    """Schedule nothing."""


#: Schedule a function to be called at the end of the running backward pass. Call this only inside a backward pass.
#: Tested with torch 2.13.
at_end_of_backward: Callable[[Callable[[], None]], None] = find(
    "torch.autograd.Variable._execution_engine.queue_callback",
    Capability.BACKWARD,
    Capability.NO_OPTIMIZER,
    Capability.COMPILED,
    otherwise=_never,
)


#: Return the innermost saved_tensors_hooks, or None. The argument must be False. A non-reentrant checkpoint sets such
#: hooks in its forward pass. Tested with torch 2.13.
saved_tensors_hooks: Callable[[bool], Any] = find(
    "torch._C._autograd._top_saved_tensors_default_hooks",
    Capability.CHECKPOINTS,
    Capability.DOCTOR,
    otherwise=_no_saved_tensors_hooks,
)


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


def checkpoints_around() -> list[object]:
    """Return an object for each activation checkpoint around the current call, the innermost one first.

    In the recomputation of a checkpoint, its object is the same as in its call. Tested with torch 2.13 and 2.15.
    """
    found: list[object] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            name, values = frame.f_code.co_name, frame.f_locals
            if name in ("forward", "backward") and "ctx" in values:  # a reentrant checkpoint
                found.append(values["ctx"])
            elif name == "unpack_hook" and "frame" in values:  # the recomputation of a non-reentrant checkpoint
                found.append(values["frame"])
            elif isinstance(values.get("gen"), GeneratorType):  # the call; its function has other names in torch 2.15
                inner = values["gen"].gi_frame
                if inner is not None and "new_frame" in inner.f_locals:
                    found.append(inner.f_locals["new_frame"])
        frame = frame.f_back
    return found


_address: Callable[[Tensor], int] | None = find("torch._C.TensorBase._cdata.__get__")


def implementation(tensor: Tensor) -> int:
    """Return the address of the C++ tensor, which only `swap_tensors` changes. Tested with torch 2.13.

    Otherwise, return the address of its memory, which `swap_tensors` changes too.
    """
    if _address is not None:
        return _address(tensor)
    return 0 if _has_no_memory(tensor) else tensor.untyped_storage().data_ptr()


def implementations(tensors: list[Tensor]) -> list[int]:
    """Return the `implementation` of each tensor. Tested with torch 2.13."""
    if _address is None:
        return list(map(implementation, tensors))
    return [tensor._cdata for tensor in tensors]


#: Return the sequence number of the next graph node. Numbers increase during the forward pass. Tested with torch 2.13.
sequence_number: Callable[[], int] = find(
    "torch._C._autograd._get_sequence_nr", Capability.GRAD_INPUT, Capability.DOCTOR, Capability.RERUN, otherwise=int
)


_node = torch.ones((), requires_grad=True, device="cpu").view(()).grad_fn
look_for(_node, "_sequence_nr", Capability.GRAD_INPUT, Capability.DOCTOR, Capability.RERUN)


def node_number(node: torch.autograd.graph.Node) -> int:
    """Return a node's sequence number (for AccumulateGrad nodes, the maximum integer). Tested with torch 2.13."""
    return node._sequence_nr()


def node_key(node: torch.autograd.graph.Node) -> tuple[int, str]:
    """Return a key that tells a node from the other nodes of its thread. Tested with torch 2.13."""
    return node_number(node), node.name()


#: The class of modes that see every operation. Tested with torch 2.13.
DispatchMode: Any = find("torch.utils._python_dispatch.TorchDispatchMode", Capability.RERUN, otherwise=object)

#: Return the graph node whose backward pass runs, or None outside a backward pass. Tested with torch 2.13.
current_node: Callable[[], torch.autograd.graph.Node | None] = find(
    "torch._C._current_autograd_node", Capability.RERUN, Capability.DOCTOR, otherwise=lambda: None
)


def factor_of(product: Tensor) -> Tensor | None:
    """Return the scalar by which a tensor was multiplied to give this one, or None if it is not such a product.

    A loss scaler multiplies the loss by its scale. The backward pass frees the factor. Tested with torch 2.13.
    """
    node = product.grad_fn
    if node is None or node.name() != "MulBackward0":
        return None
    factor: Tensor | None = getattr(node, "_saved_other", None)
    return factor if factor is not None and factor.dim() == 0 else None


def _no_base(_: Tensor) -> None:
    return None


#: Return the base tensor if autograd treats a tensor as a view, otherwise None. Tested with torch 2.13.
view_base: Callable[[Tensor], Tensor | None] = find(
    "torch._C.TensorBase._base.__get__", Capability.MODULE_GRADS, Capability.DOCTOR, otherwise=_no_base
)


def version_counter(tensor: Tensor) -> Tensor:
    """Return an empty tensor that shares the version counter of `tensor` without keeping that tensor's memory alive.

    Tested with torch 2.13.
    """
    probe = tensor.detach()
    probe.data = probe.new_empty(0)
    return probe


def _has_no_memory(tensor: Tensor) -> bool:
    """Return True if a tensor has no memory of its own, like all wrappers from torch.func."""
    try:
        tensor.untyped_storage().data_ptr()
    except RuntimeError:
        return True
    return False


#: Return True if a tensor is a wrapper from torch.func (vmap, grad), which must not be stored. Tested with torch 2.13.
is_functorch: Callable[[Tensor], bool] = find(
    "torch._C._functorch.is_functorch_wrapped_tensor", otherwise=_has_no_memory
)


_is_batched: Callable[[Tensor], bool] = find("torch._C._functorch.is_batchedtensor", otherwise=lambda tensor: False)
_unwrapped: Callable[[Tensor], Tensor] = find("torch._C._functorch.get_unwrapped", otherwise=lambda tensor: tensor)


def is_batched(tensor: Tensor) -> bool:
    """Return True if vmap shows one sample of a batch as this tensor, also inside grad. Tested with torch 2.13."""
    while is_functorch(tensor) and not _is_batched(tensor):
        inner = _unwrapped(tensor)
        if inner is tensor:
            return False
        tensor = inner
    return _is_batched(tensor)


def is_mean(node: Any) -> bool:
    """Return True for the node of a mean, or of a loss function that returns the mean of its losses.

    Tested with torch 2.13, where the reduction of a loss function is the number 1 if it is a mean.
    """
    return node.name().startswith("MeanBackward") or getattr(node, "_saved_reduction", None) == 1


def divisor_of(node: Any) -> float | None:
    """Return the number by which a node divides a tensor, or None. Tested with torch 2.13.

    This calls the hooks on saved tensors that were active when the node was made.
    """
    name, other = node.name(), getattr(node, "_saved_other", None)
    if type(other) is not Tensor or other.numel() != 1 or not name.startswith(("DivBackward", "MulBackward")):
        return None
    if other.is_meta or other.is_complex() or is_functorch(other):
        return None  # there is no number to read
    number = float(other.detach())
    return number if name.startswith("Div") else 1 / number if number else None


#: Return how many times a tensor was changed in place, or raise RuntimeError for an inference tensor. This is the C
#: getter of `Tensor._version`, so a call creates no Python frame. Tested with torch 2.13.
read_version: Callable[[Tensor], int] = find(
    "torch._C.TensorBase._version.__get__",
    Capability.FUNCTIONS,
    Capability.MODULE_GRADS,
    Capability.DOCTOR,
    Capability.RERUN,
    otherwise=lambda tensor: 0,
)


def version(tensor: Tensor) -> int | None:
    """Return how many times a tensor was changed in place, or None for an inference tensor. Tested with torch 2.13."""
    return None if tensor.is_inference() else read_version(tensor)


class TensorMark:
    """Remember a tensor without keeping it alive, to recognize it later.

    It holds no weak reference to the tensor, because `swap_tensors` refuses a tensor that has one. It holds one to the
    tensor's storage instead, so that another tensor that gets the same id is not taken for it. Tested with torch 2.13.
    """

    __slots__ = ("_id", "_kind", "_storage", "version")

    def __init__(self, tensor: Tensor) -> None:
        storage = _storage(tensor)
        self._id = id(tensor)
        self._kind = (tensor.dtype, tensor.device)
        self._storage = None if storage is None else weakref.ref(storage)
        #: how many times the tensor had been changed in place, or None for an inference tensor
        self.version = version(tensor)

    def is_of(self, tensor: Tensor) -> bool:
        """Return True if a tensor is the marked one. `Module.to` may have given it another storage."""
        if id(tensor) != self._id:
            return False
        same = self._storage is None or self._storage() is _storage(tensor)
        return same or (tensor.dtype, tensor.device) != self._kind

    def is_unchanged(self, tensor: Tensor) -> bool:
        """Return True if a tensor is the marked one and was not changed in place since."""
        return self.is_of(tensor) and version(tensor) == self.version


def _storage(tensor: Tensor) -> torch.UntypedStorage | None:
    """Return the storage of a tensor, or None if it has none, like a sparse one."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


_use_count: Callable[[int], int] = find("torch._C._storage_Use_Count", Capability.DOCTOR)


def memory_users(tensor: Tensor) -> int:
    """Return how many tensors and views use the memory of a tensor, or 0 if unknown. Tested with torch 2.13."""
    if tensor.layout is not torch.strided:
        return 0
    return int(_use_count(tensor.untyped_storage()._cdata))


def versions(tensors: list[Tensor]) -> list[int]:
    """Return how many times each tensor was changed in place. Tested with torch 2.13."""
    return [read_version(tensor) for tensor in tensors]


_set_version_counter: Callable[..., None] = find(
    "torch._C._autograd._unsafe_set_version_counter", Capability.DOCTOR, Capability.COMPILED
)


def set_versions(tensors: list[Tensor], versions: list[int]) -> None:
    """Set version counters, so that a backward pass through a graph that saved these tensors does not fail.

    Tested with torch 2.13.
    """
    _set_version_counter(tuple(tensors), tuple(versions))


#: The function through which `backward` and `grad` call the autograd engine. Tested with torch 2.13.
ENGINE_ENTRY = entry("torch.autograd._engine_run_backward", Capability.DOCTOR)


def accumulated_into(node: torch.autograd.graph.Node) -> Tensor | None:
    """Return the leaf tensor of an AccumulateGrad node, or None for other nodes. Tested with torch 2.13."""
    return getattr(node, "variable", None)
