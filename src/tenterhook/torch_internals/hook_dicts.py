"""Private attributes: the dicts that PyTorch keeps hooks in."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_module
from torch.optim import optimizer as optimizer_module

#: The function that sees the output of each call of a module with full backward hooks; it keeps the module.
#: Seen on torch 2.13.
OUTPUT_ENTRY = (torch.utils.hooks.BackwardHook, "setup_output_hook")


def registered_in(handle: Any) -> dict[int, Any] | None:
    """Return the dict that a RemovableHandle would remove its hook from; None if that is gone. Seen on torch 2.13."""
    hooks: dict[int, Any] | None = handle.hooks_dict_ref()
    return hooks


#: The dicts of a tensor that hold hooks. Seen on torch 2.13.
HOOK_SLOTS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def tensor_hooks(tensor: Tensor, slot: str) -> OrderedDict[int, Any] | None:
    """Return one of a tensor's hook dicts; None if nothing was ever registered. Seen on torch 2.13."""
    hooks: OrderedDict[int, Any] | None = getattr(tensor, slot)
    return hooks


def reinstall_tensor_hooks(tensor: Tensor) -> None:
    """Connect the hook dicts to the tensor again, which `swap_tensors` leaves listed but dead; harmless twice.

    Seen on torch 2.13.
    """
    for slot in HOOK_SLOTS:
        hooks = getattr(tensor, slot)
        if hooks is not None:
            setattr(tensor, slot, hooks)


def drop_empty_tensor_hooks(tensor: Tensor) -> None:
    """Set empty hook dicts back to None; removing the last hook leaves them. Seen on torch 2.13."""
    for slot in HOOK_SLOTS:
        hooks = getattr(tensor, slot)
        if hooks is not None and not hooks:
            setattr(tensor, slot, None)


def put_in_order(hooks: dict[int, Any], keys: list[int]) -> None:
    """Rearrange a hook dict in place; a tensor's is read in the order of insertion, which move_to_end does not change.

    Seen on torch 2.13.
    """
    items = [(key, hooks[key]) for key in keys]
    hooks.clear()
    hooks.update(items)


#: The dicts of a module that hold hooks, each with the name of the function that fills it. Seen on torch 2.13.
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
    """Return MODULE_SLOTS for this module: its backward hooks are of the legacy kind or of the full one, never both.

    Seen on torch 2.13.
    """
    if module._is_full_backward_hook is False:
        return MODULE_SLOTS | {"_backward_hooks": "register_backward_hook"}
    return MODULE_SLOTS


def count_hooks(owner: Any, register: str) -> int | None:
    """Return how many hooks a register function has put on a module; None for other owners. Seen on torch 2.13."""
    slot = next((slot for slot, by in MODULE_SLOTS.items() if by == register), None)
    hooks = getattr(owner, slot, None) if slot is not None and isinstance(owner, nn.Module) else None
    return None if hooks is None else len(hooks)


_unnumbered = itertools.count(-1, -1)


def insert_hook(hooks: dict[int, Any], fn: Callable[..., Any]) -> Callable[[], None]:
    """Put a hook into a dict without using up a number, so that others get those they would have got.

    Return what takes it out again. Seen on torch 2.13.
    """
    key = next(_unnumbered)
    hooks[key] = fn
    return lambda: hooks.pop(key, None) and None


#: The hooks on every module's call. Seen on torch 2.13.
EVERY_CALL: dict[int, Any] = module_module._global_forward_pre_hooks
#: The hooks on every optimizer's step, before it and after it. Seen on torch 2.13.
EVERY_STEP: tuple[dict[int, Any], dict[int, Any]] = (
    optimizer_module._global_optimizer_pre_hooks,
    optimizer_module._global_optimizer_post_hooks,
)


def forget_hook(module: nn.Module, slot: str, key: int) -> None:
    """Remove a hook whose handle is not at hand, with its entries in the dicts beside. Seen on torch 2.13."""
    for name in (slot, f"{slot}_with_kwargs", f"{slot}_always_called"):
        getattr(module, name, {}).pop(key, None)


#: The dicts of an optimizer that hold hooks, each with the name of the function that fills it. Seen on torch 2.13.
OPTIMIZER_SLOTS = {
    "_optimizer_step_pre_hooks": "register_step_pre_hook",
    "_optimizer_step_post_hooks": "register_step_post_hook",
    "_optimizer_state_dict_pre_hooks": "register_state_dict_pre_hook",
    "_optimizer_state_dict_post_hooks": "register_state_dict_post_hook",
    "_optimizer_load_state_dict_pre_hooks": "register_load_state_dict_pre_hook",
    "_optimizer_load_state_dict_post_hooks": "register_load_state_dict_post_hook",
}


def hooks_in(owner: object, slot: str) -> dict[int, Any]:
    """Return one of the dicts named above; empty if the owner has none. Seen on torch 2.13."""
    hooks: dict[int, Any] | None = getattr(owner, slot, None)
    return {} if hooks is None else hooks


def is_only(hooks: dict[int, Any]) -> bool:
    """Return True if a hook dict holds one hook."""
    return len(hooks) == 1


def is_before_others(hooks: dict[int, Any], key: int) -> bool:
    """Return True if something was registered after the hook of that handle id."""
    return key in hooks and next(reversed(hooks), None) != key
