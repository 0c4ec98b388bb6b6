"""Read and change the private dicts in which PyTorch stores hooks."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable
from types import FrameType
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim import optimizer as optimizer_module
from torch.utils.hooks import RemovableHandle

from tenterhook.torch_internals.capabilities import Capability, entry, find, look_for, needed_for

_MODULE_FILE = nn.Module.__init__.__code__.co_filename

#: The method that receives the output of each call of a module with full backward hooks. The object that has this
#: method stores the module as an attribute. Tested with torch 2.13.
OUTPUT_ENTRY = entry("torch.utils.hooks.BackwardHook.setup_output_hook", Capability.DOCTOR)


#: The private register functions of a module that programs use. The result of the first kind of hook is ignored unless
#: the module is the root. Tested with torch 2.13.
STATE_REGISTRARS = ("_register_state_dict_hook", "_register_load_state_dict_pre_hook")


def step_depth(frame: FrameType | None) -> int:
    """Return how many calls of `step` of the same optimizer are on the stack of a step hook's call.

    PyTorch wraps `step` in a function that calls the hooks and has the optimizer in a local variable. Tested with
    torch 2.13.
    """
    file, optimizers = optimizer_module.__file__, []
    while frame is not None:
        if frame.f_code.co_name == "wrapper" and frame.f_code.co_filename == file:
            optimizers.append(frame.f_locals.get("self"))
        frame = frame.f_back
    return sum(one is optimizers[0] for one in optimizers)


def first_handle(handle: Any) -> Any:
    """Return the handle of the first tensor of a hook on several tensors. Tested with torch 2.13."""
    return next(iter(getattr(handle, "handles", ())), handle)


#: the functions of a module that call its forward hooks
_CALL_IMPL = ("_call_impl", "inner")


def running_hook(frame: FrameType) -> int | None:
    """Return the id of the forward hook that a frame of PyTorch is calling, or None if it calls no forward hook.

    The frame is one of `Module._call_impl`, whose loop has the id in a local variable. Tested with torch 2.13.
    """
    if frame.f_code.co_name in _CALL_IMPL and frame.f_code.co_filename == _MODULE_FILE:
        return frame.f_locals.get("hook_id")
    return None


def call_kwargs(frame: FrameType | None) -> dict[str, Any]:
    """Return the keyword arguments of the module whose hook a frame of PyTorch is calling.

    The frame is one of `Module._call_impl`, which has them in a local variable. Tested with torch 2.13.
    """
    if frame is None or frame.f_code.co_name not in _CALL_IMPL or frame.f_code.co_filename != _MODULE_FILE:
        return {}
    return frame.f_locals.get("kwargs") or {}


def gets_kwargs(owner: Any, slot: str, id: int) -> bool:
    """Return True if a module's forward hook also gets the keyword arguments of the call. Tested with torch 2.13."""
    return id in getattr(owner, f"{slot}_with_kwargs", ())


@needed_for(Capability.DOCTOR)
def registered_in(handle: Any) -> dict[int, Any] | None:
    """Return the dict that contains the hook of a RemovableHandle, or None if the dict no longer exists.

    Tested with torch 2.13.
    """
    hooks: dict[int, Any] | None = handle.hooks_dict_ref()
    return hooks


#: The attributes of a tensor that contain hooks. Tested with torch 2.13.
HOOK_SLOTS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_OF_TENSORS = (Capability.INVENTORY, Capability.GRAD_INPUT, Capability.SEVERAL_RIGS, Capability.DOCTOR)
for _slot in HOOK_SLOTS:
    find(f"torch.Tensor.{_slot}", *_OF_TENSORS)


def tensor_hooks(tensor: Tensor, slot: str) -> OrderedDict[int, Any] | None:
    """Return one of the hook dicts of a tensor, or None if the tensor never had such a hook. Tested with torch 2.13."""
    hooks: OrderedDict[int, Any] | None = getattr(tensor, slot, None)
    return hooks


def reinstall_tensor_hooks(tensor: Tensor) -> None:
    """Enable the hooks of a tensor again after `swap_tensors`, which keeps the hook dicts but disables the hooks.

    Calling this function again has no effect. Tested with torch 2.13.
    """
    for slot in HOOK_SLOTS:
        hooks = tensor_hooks(tensor, slot)
        if hooks is not None:
            setattr(tensor, slot, hooks)


def drop_empty_tensor_hooks(tensor: Tensor) -> None:
    """Set empty hook dicts to None, because PyTorch keeps a dict after its last hook is removed.

    Tested with torch 2.13.
    """
    for slot in HOOK_SLOTS:
        hooks = tensor_hooks(tensor, slot)
        if hooks is not None and not hooks:
            setattr(tensor, slot, None)


def put_in_order(hooks: dict[int, Any], keys: list[int]) -> None:
    """Sort the entries of a hook dict in place, in the order of `keys`.

    Autograd reads the hook dict of a tensor in insertion order, which `move_to_end` does not change. Tested with torch
    2.13.
    """
    items = [(key, hooks[key]) for key in keys]
    hooks.clear()
    hooks.update(items)


def register_first(module: nn.Module, fn: Callable[..., Any], *, with_kwargs: bool = False) -> RemovableHandle:
    """Register a forward pre-hook that is called before those that are there.

    `prepend=True` moves the entry without a change of the dict's insertion order. Dynamo of torch 2.10 and 2.11 numbers
    the hooks in that order, but calls them in the other one, and fails on a module with two hooks. So the entries are
    inserted again. Tested with torch 2.10 to 2.15.
    """
    handle = module.register_forward_pre_hook(fn, prepend=True, with_kwargs=with_kwargs)
    hooks = module._forward_pre_hooks
    if len(hooks) > 1:
        put_in_order(hooks, list(hooks))
    return handle


#: The attributes of a module that contain hooks, each with the name of its register function. Tested with torch 2.13.
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
_module = nn.Module()
for _slot in MODULE_SLOTS:
    look_for(_module, _slot, Capability.INVENTORY, Capability.SEVERAL_RIGS, Capability.DOCTOR)


def registered_by(module: nn.Module) -> dict[str, str]:
    """Return MODULE_SLOTS, adapted to the kind of backward hooks that this module has.

    The backward hooks of a module are either all legacy hooks or all full hooks. Tested with torch 2.13.
    """
    if getattr(module, "_is_full_backward_hook", None) is False:
        return MODULE_SLOTS | {"_backward_hooks": "register_backward_hook"}
    return MODULE_SLOTS


def count_hooks(owner: Any, register: str) -> int | None:
    """Return the number of hooks that were registered on a module with `register`, or None for other owners.

    Tested with torch 2.13.
    """
    slot = next((slot for slot, by in MODULE_SLOTS.items() if by == register), None)
    hooks = getattr(owner, slot, None) if slot is not None and isinstance(owner, nn.Module) else None
    return None if hooks is None else len(hooks)


_unnumbered = itertools.count(-1, -1)


def insert_hook(hooks: dict[int, Any], fn: Callable[..., Any]) -> Callable[[], None]:
    """Insert a hook into a dict without consuming a handle id, so that the ids of other hooks do not change.

    Return a function that removes the hook. Tested with torch 2.13.
    """
    key = next(_unnumbered)
    hooks[key] = fn
    return lambda: hooks.pop(key, None) and None


#: The global hooks that run before every forward call of a module. Tested with torch 2.13.
EVERY_CALL: dict[int, Any] = find("torch.nn.modules.module._global_forward_pre_hooks", Capability.DOCTOR)
#: The global hooks that run before and after every optimizer step. Tested with torch 2.13.
EVERY_STEP: tuple[dict[int, Any], dict[int, Any]] = (
    find("torch.optim.optimizer._global_optimizer_pre_hooks", Capability.DOCTOR, within=optimizer_module),
    find("torch.optim.optimizer._global_optimizer_post_hooks", Capability.DOCTOR, within=optimizer_module),
)


def forget_hook(module: nn.Module, slot: str, key: int) -> None:
    """Remove a hook and its entries in related dicts, without using its handle. Tested with torch 2.13."""
    for name in (slot, f"{slot}_with_kwargs", f"{slot}_always_called"):
        getattr(module, name, {}).pop(key, None)


#: The attributes of an optimizer that contain hooks, each with its register function. Tested with torch 2.13.
OPTIMIZER_SLOTS = {
    "_optimizer_step_pre_hooks": "register_step_pre_hook",
    "_optimizer_step_post_hooks": "register_step_post_hook",
    "_optimizer_state_dict_pre_hooks": "register_state_dict_pre_hook",
    "_optimizer_state_dict_post_hooks": "register_state_dict_post_hook",
    "_optimizer_load_state_dict_pre_hooks": "register_load_state_dict_pre_hook",
    "_optimizer_load_state_dict_post_hooks": "register_load_state_dict_post_hook",
}


def has_step_hooks(optimizer: object) -> bool:
    """Return True if an optimizer can have hooks. A wrapper that does not call `Optimizer.__init__` cannot.

    Tested with torch 2.13.
    """
    return isinstance(optimizer, Optimizer) and hasattr(optimizer, "_optimizer_step_pre_hooks")


@needed_for(Capability.INVENTORY)
def optimizer_hooks(optimizer: Optimizer, slot: str) -> dict[int, Any]:
    """Return one of the hook dicts of an optimizer. Tested with torch 2.13."""
    hooks: dict[int, Any] = getattr(optimizer, slot)
    return hooks


def hooks_in(owner: object, slot: str) -> dict[int, Any]:
    """Return one of the hook dicts of a module, or an empty dict. Tested with torch 2.13."""
    hooks: dict[int, Any] | None = getattr(owner, slot, None)
    return {} if hooks is None else hooks


def is_only(hooks: dict[int, Any]) -> bool:
    """Return True if a hook dict contains exactly one hook."""
    return len(hooks) == 1


def is_before_others(hooks: dict[int, Any], key: int) -> bool:
    """Return True if another hook was registered after the hook with this handle id."""
    return key in hooks and next(reversed(hooks), None) != key
