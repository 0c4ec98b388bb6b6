"""Private attributes of modules, parameters and optimizers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

import torch
from torch import Tensor, nn


def child_modules(module: nn.Module) -> dict[str, nn.Module | None]:
    """Return the dict of a module's children. Seen on torch 2.13."""
    return module._modules


def own_parameters(module: nn.Module) -> Mapping[str, Tensor | None]:
    """Return the dict of a module's own parameters, in which FSDP2 and parametrizations swap entries.

    Seen on torch 2.13.
    """
    return module._parameters


#: The function by which `clip_grad_norm_` scales the gradients, however it was imported. Seen on torch 2.13.
CLIP_ENTRY = (torch.nn.utils.clip_grad, "_clip_grads_with_norm_")
#: The function by which `torch.func.functional_call` puts other tensors in. Seen on torch 2.13.
FUNCTIONAL_ENTRY = (torch.nn.utils.stateless, "_functional_call")


def pending_scale(optimizer: torch.optim.Optimizer) -> Tensor | None:
    """Return the factor that a fused optimizer will divide its gradients by, which GradScaler sets; None if none is.

    Seen on torch 2.13.
    """
    return getattr(optimizer, "grad_scale", None)


class _Scaled(Protocol):
    grad_scale: Tensor | None


def clear_scale(optimizer: torch.optim.Optimizer) -> None:
    """Clear `pending_scale`, once the gradients were divided by it. Seen on torch 2.13."""
    cast(_Scaled, optimizer).grad_scale = None


def found_inf(optimizer: torch.optim.Optimizer) -> Tensor | None:
    """Return 1 if a fused optimizer is about to skip its step, which GradScaler sets; None if it did not.

    Seen on torch 2.13.
    """
    return getattr(optimizer, "found_inf", None)


#: The children of wrappers that are not part of a name. Seen on torch 2.13.
TRANSPARENT = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")
