"""Read and set private attributes of modules, parameters and optimizers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from tenterhook.torch_internals.capabilities import Capability, entry, look_for


def child_modules(module: nn.Module) -> Mapping[str, nn.Module | None]:
    """Return the direct children of a module by name. Tested with torch 2.13."""
    if _HAS_CHILDREN:
        return module._modules
    below = module.named_modules(remove_duplicate=False)
    return {name: one for name, one in below if name and "." not in name}


def own_parameters(module: nn.Module) -> Mapping[str, Tensor | None]:
    """Return the direct parameters of a module by name. FSDP2 and parametrizations replace them.

    Tested with torch 2.13.
    """
    if _HAS_PARAMETERS:
        return module._parameters
    return dict(module.named_parameters(recurse=False, remove_duplicate=False))


_example = nn.Module()
_HAS_CHILDREN, _HAS_PARAMETERS = look_for(_example, "_modules"), look_for(_example, "_parameters")


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
