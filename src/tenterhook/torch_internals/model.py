"""Read and set private attributes of modules, parameters and optimizers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from tenterhook.torch_internals.capabilities import Capability, entry, find, look_for


def child_modules(module: nn.Module) -> Mapping[str, nn.Module | None]:
    """Return the direct children of a module by name. Tested with torch 2.13."""
    if _HAS_CHILDREN:
        return module._modules if not is_scripted(module) else dict(module._modules.items())
    below = module.named_modules(remove_duplicate=False)
    return {name: one for name, one in below if name and "." not in name}


def own_parameters(module: nn.Module) -> Mapping[str, Tensor | None]:
    """Return the direct parameters of a module by name. FSDP2 and parametrizations replace them.

    Tested with torch 2.13.
    """
    if _HAS_PARAMETERS:
        return module._parameters if not is_scripted(module) else dict(module._parameters.items())
    return dict(module.named_parameters(recurse=False, remove_duplicate=False))


def is_scripted(module: nn.Module) -> bool:
    """Return True for a module that `torch.jit.script` or `torch.jit.trace` made. It has no dicts of its own.

    Tested with torch 2.13.
    """
    return _HAS_CHILDREN and not isinstance(module._modules, dict)


def children_of(modules: Iterable[nn.Module]) -> Iterable[Mapping[str, nn.Module | None]]:
    """Return `child_modules` of each module. Tested with torch 2.13."""
    return [module._modules for module in modules] if _HAS_CHILDREN else map(child_modules, modules)


def parameters_of(modules: Iterable[nn.Module]) -> Iterable[Mapping[str, Tensor | None]]:
    """Return `own_parameters` of each module. Tested with torch 2.13."""
    return [module._parameters for module in modules] if _HAS_PARAMETERS else map(own_parameters, modules)


_example = nn.Module()
_HAS_CHILDREN, _HAS_PARAMETERS = look_for(_example, "_modules"), look_for(_example, "_parameters")


def calls_of(module: nn.Module) -> int:
    """Return how many calls of a module are running, in any thread.

    A call is visible only as a frame. Tested with torch 2.13.
    """
    if _CALL is None:
        return 1  # unknown
    return sum(_calls_in(top, module) for top in sys._current_frames().values())


def is_called_here(module: nn.Module) -> bool:
    """Return True if a call of a module is running in this thread. It looks no further than to this call.

    Tested with torch 2.13.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _CALL is not None:
        if _is_call(frame, module):
            return True
        frame = frame.f_back
    return _CALL is None  # unknown


def _calls_in(frame: FrameType | None, module: nn.Module | None) -> int:
    count = 0
    while frame is not None:
        count += _is_call(frame, module)
        frame = frame.f_back
    return count


def _is_call(frame: FrameType, module: nn.Module | None) -> bool:
    if frame.f_code is not _CALL:
        return False
    called = frame.f_locals.get("self")
    return called is module or getattr(called, "_orig_mod", None) is module


def runs_a_pass(thread: int, module: nn.Module | None) -> bool:
    """Return True if a thread runs a call of a module or any backward pass. Tested with torch 2.13."""
    top = sys._current_frames().get(thread)
    frame, backward = top, False
    while frame is not None and not backward:
        backward = frame.f_code is _BACKWARD
        frame = frame.f_back
    return backward or _calls_in(top, module) > 0


_BACKWARD = find("torch.autograd.graph._engine_run_backward.__code__")
_CALL = find("torch.nn.Module._wrapped_call_impl.__code__")

#: The function that `clip_grad_norm_` calls to scale the gradients. Even a `clip_grad_norm_` that was imported by name
#: calls it. Tested with torch 2.13.
CLIP_ENTRY = entry("torch.nn.utils.clip_grad._clip_grads_with_norm_", Capability.DOCTOR)
#: The function that `torch.func.functional_call` calls to replace the parameters. Tested with torch 2.13.
FUNCTIONAL_ENTRY = entry("torch.nn.utils.stateless._functional_call", Capability.DOCTOR)


def pending_scale(optimizer: torch.optim.Optimizer) -> Tensor | None:
    """Return the factor by which a fused optimizer will divide its gradients, or None. GradScaler sets the factor.

    Tested with torch 2.13.
    """
    return getattr(optimizer, "grad_scale", None)


class _Scaled(Protocol):
    grad_scale: Tensor | None


def clear_scale(optimizer: torch.optim.Optimizer) -> None:
    """Clear `pending_scale` after the gradients have been divided by it. Tested with torch 2.13."""
    cast(_Scaled, optimizer).grad_scale = None


def found_inf(optimizer: torch.optim.Optimizer) -> Tensor | None:
    """Return 1 if a fused optimizer will skip its step, 0 if it will not, or None if GradScaler has set no value.

    Tested with torch 2.13.
    """
    return getattr(optimizer, "found_inf", None)


#: Keys under which wrappers store the wrapped module. Canonical names omit these keys. Tested with torch 2.13.
TRANSPARENT = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")
