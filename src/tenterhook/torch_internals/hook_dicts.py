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

#: what sees the output of each call of a module with full backward hooks; it keeps the module. 2.13
OUTPUT_ENTRY = (torch.utils.hooks.BackwardHook, "setup_output_hook")


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
