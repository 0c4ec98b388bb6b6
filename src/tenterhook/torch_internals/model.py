"""Read and set private attributes of modules, parameters and optimizers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

import torch
from torch import Tensor, nn


def child_modules(module: nn.Module) -> dict[str, nn.Module | None]:
    """Return the dict of the direct children of a module. Tested with torch 2.13."""
    return module._modules


def own_parameters(module: nn.Module) -> Mapping[str, Tensor | None]:
    """Return the dict of the direct parameters of a module. FSDP2 and parametrizations replace entries of this dict.

    Tested with torch 2.13.
    """
    return module._parameters


#: The function that `clip_grad_norm_` calls to scale the gradients. Even a `clip_grad_norm_` that was imported by name
#: calls it. Tested with torch 2.13.
CLIP_ENTRY = (torch.nn.utils.clip_grad, "_clip_grads_with_norm_")
#: The function that `torch.func.functional_call` calls to replace the parameters. Tested with torch 2.13.
FUNCTIONAL_ENTRY = (torch.nn.utils.stateless, "_functional_call")


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
