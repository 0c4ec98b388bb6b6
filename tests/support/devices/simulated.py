"""Provide a device that exists only in Python. Its tensors hold their values in the memory of the CPU.

Autograd treats it as an accelerator: it has a thread of its own for the backward pass, and tensors on different devices
do not mix. Each transfer between the device and the host is counted. A copy that does not wait arrives only when
the program waits for an event that was recorded after it; until then, the host has NaN.

PyTorch can register one such device in a process, and it has one index. Tested with torch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from tests.support.devices import transfers
from tests.support.devices.transfers import Kind, note

NAME = "simulated"
aten = torch.ops.aten

#: a CPU number without dimensions may be an argument of these functions, which are not marked as pointwise
_TAKE_NUMBERS = (aten.fill_.Tensor, aten.masked_fill_.Tensor, aten.index_put_.default, aten.index_put.default)
_INDEXED = (aten.index.Tensor, aten.index_put_.default, aten.index_put.default)
#: asynchronous copies to the host that have not arrived: the tensor on the host, and the values
_sent: list[tuple[Tensor, Tensor]] = []


class SimulatedTensor(Tensor):
    """A tensor on the simulated device."""

    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> SimulatedTensor:
        made = Tensor._make_wrapper_subclass(  # the way in which PyTorch lets a subclass choose its device
            cls,
            values.size(),
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=torch.device(NAME, 0),
        )
        made.values = values
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(function, args, kwargs or {})

    def tolist(self) -> Any:
        note(Kind.READ, "tolist")
        return self.values.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        note(Kind.READ, "numpy")
        raise TypeError(f"can't convert {self.device} device type tensor to numpy")

    def data_ptr(self) -> int:
        return self.values.data_ptr()

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        return f"SimulatedTensor({self.values})"


class OnSimulatedDevice(TorchDispatchMode):
    """Inside a `with` block, functions such as `torch.zeros` create tensors on the device if `device=` names it."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(function, args, kwargs or {})


def _run(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run a function on the values, count what it transfers, and return tensors on the device if it has some."""
    given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
    here = any(isinstance(one, SimulatedTensor) for one in given)
    if function in _COPIES:
        return _COPIES[function](*args, **kwargs)
    if here:
        if _waits(function, args):
            note(Kind.READ, str(function))
        _refuse_mixed(function, args, given)
    device = kwargs.get("device")
    if device is not None:
        here = torch.device(device).type == NAME
        kwargs = {**kwargs, "device": "cpu"} if here else kwargs
    made = function(*tree_map(_values, args), **tree_map(_values, kwargs))
    known = {id(one.values): one for one in given if isinstance(one, SimulatedTensor)}
    return tree_map(lambda one: _on_device(one, known) if here else one, made)


def _values(one: Any) -> Any:
    return one.values if isinstance(one, SimulatedTensor) else one


def _on_device(one: Any, known: dict[int, SimulatedTensor]) -> Any:
    """Return a tensor on the device. A function that works in place returns the tensor that it was given."""
    if not isinstance(one, Tensor):
        return one
    return known[id(one)] if id(one) in known else SimulatedTensor(one)


def _waits(function: Any, args: Any) -> bool:
    """Return True if a function needs values on the host: to return a number, or to know the shape of its result."""
    if function in _INDEXED:
        return any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in args[1])
    return torch.Tag.data_dependent_output in function.tags or torch.Tag.dynamic_output_shape in function.tags


def _refuse_mixed(function: Any, args: Any, given: list[Tensor]) -> None:
    """Raise the error that a device raises for a tensor on the CPU. Numbers are accepted by pointwise functions."""
    indices = [one for one in args[1] if one is not None] if function in _INDEXED else []
    for one in indices:
        if not isinstance(one, SimulatedTensor):
            note(Kind.TO_DEVICE, str(function))  # PyTorch moves an index to the device
    numbers = torch.Tag.pointwise in function.tags or function in _TAKE_NUMBERS
    for one in given:
        if isinstance(one, SimulatedTensor) or any(one is index for index in indices) or (numbers and one.dim() == 0):
            continue
        raise RuntimeError(f"{function}: all tensors must be on one device, but found {NAME}:0 and cpu")


# -- copies -----------------------------------------------------------------------------------------------------------


def _copy_into(into: Tensor, values: Tensor, non_blocking: bool = False) -> Tensor:
    from_device, to_device = isinstance(values, SimulatedTensor), isinstance(into, SimulatedTensor)
    _note_copy("copy_", from_device, to_device, non_blocking)
    if from_device and not to_device and non_blocking:
        _sent.append((into, values.values.clone()))
        into.fill_(torch.nan if into.is_floating_point() else -1)
    else:
        _values(into).copy_(_values(values))
    return into


def _copy_all(into: list[Tensor], values: list[Tensor], non_blocking: bool = False) -> None:
    for one, new in zip(into, values, strict=True):
        _copy_into(one, new, non_blocking)


def _make_copy(one: Tensor, *, device: Any = None, non_blocking: bool = False, **options: Any) -> Tensor:
    from_device = isinstance(one, SimulatedTensor)
    to_device = from_device if device is None else torch.device(device).type == NAME
    if from_device and not to_device and non_blocking:
        like = {name: value for name, value in options.items() if name in ("dtype", "layout", "memory_format")}
        return _copy_into(torch.empty_like(_values(one), **like), one, True)
    _note_copy("_to_copy", from_device, to_device, non_blocking)
    made = aten._to_copy.default(_values(one), **options, device="cpu")
    return SimulatedTensor(made) if to_device else made


def _note_copy(operation: str, from_device: bool, to_device: bool, non_blocking: bool) -> None:
    if from_device and not to_device:
        note(Kind.TO_HOST_LATER if non_blocking else Kind.TO_HOST, operation)
    elif to_device and not from_device:
        note(Kind.TO_DEVICE_LATER if non_blocking else Kind.TO_DEVICE, operation)


_COPIES: dict[Any, Callable[..., Any]] = {
    aten.copy_.default: _copy_into,
    aten._foreach_copy_.default: _copy_all,
    aten._to_copy.default: _make_copy,
}


class SimulatedEvent:
    """Stands for `torch.Event`, which does nothing on a device that exists only in Python.

    A thread that waits for an event of the same step is counted. The work of an earlier step has been done meanwhile.
    """

    def __init__(self, device: Any = None) -> None:
        self._after: list[tuple[Tensor, Tensor]] = []
        self._window = transfers.window

    def record(self) -> None:
        self._after, self._window = list(_sent), transfers.window
        _sent.clear()

    def synchronize(self) -> None:
        if self._window == transfers.window:
            note(Kind.READ, "Event.synchronize")
        for into, values in self._after:
            into.copy_(values)
        self._after = []


class SimulatedGenerator(torch.Generator):
    """Stands for `torch.Generator`. On the device, it is a generator of the CPU, so that both draw the same numbers."""

    def __new__(cls, device: Any = "cpu") -> SimulatedGenerator:
        return super().__new__(cls, "cpu" if torch.device(device).type == NAME else device)


# -- the device in the process ----------------------------------------------------------------------------------------


class _Module:
    """Stands for a module such as `torch.cuda`. The device draws its random numbers from the generator of the CPU."""

    get_rng_state = staticmethod(lambda device=None: torch.get_rng_state())
    set_rng_state = staticmethod(lambda state, device=None: torch.set_rng_state(state))
    manual_seed_all = staticmethod(lambda seed: None)
    is_available = is_initialized = staticmethod(lambda: True)
    _is_in_bad_fork = staticmethod(lambda: False)  # torch.manual_seed calls this
    device_count = staticmethod(lambda: 1)
    current_device = staticmethod(lambda: 0)
    get_amp_supported_dtype = staticmethod(lambda: [torch.float16, torch.bfloat16])


_library = torch.library.Library("aten", "IMPL")


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **options: Any) -> Tensor:
    return SimulatedTensor(torch.empty_strided(size, stride, dtype=dtype, device="cpu"))


def _empty(size: Any, *, dtype: Any = None, **options: Any) -> Tensor:
    return SimulatedTensor(torch.empty(size, dtype=dtype, device="cpu"))


def _copy_from(values: Tensor, into: Tensor, non_blocking: bool = False) -> Tensor:
    return _copy_into(into, values, non_blocking)


def register() -> None:
    """Register the device. This changes the process and cannot be undone.

    PyTorch has no public function for a device that is written in Python.
    """
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
    # In the main thread, torch.tensor(..., device=NAME) creates a tensor on the CPU and copies it. In the threads of
    # autograd, which do not have this setting, it calls these functions without asking the dispatch mode.
    torch._C._set_only_lift_cpu_tensors(True)
    _library.impl("empty_strided", _empty_strided, "PrivateUse1")
    _library.impl("empty.memory_format", _empty, "PrivateUse1")
    _library.impl("_copy_from", _copy_from, "PrivateUse1")
    torch.Event = SimulatedEvent  # type: ignore[misc, assignment]
    torch.Generator = SimulatedGenerator  # type: ignore[misc, assignment]


def move(model: nn.Module) -> nn.Module:
    """Move a model to the device. `Module.to` cannot give a parameter another type."""
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            moved = nn.Parameter(SimulatedTensor(parameter.detach().clone()), parameter.requires_grad)
            setattr(module, name, moved)
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, SimulatedTensor(buffer.clone()))
    return model
