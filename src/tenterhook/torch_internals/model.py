"""Private attributes of modules, parameters and optimizers."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def child_modules(module: nn.Module) -> dict[str, nn.Module | None]:
    return module._modules


def own_parameters(module: nn.Module) -> dict[str, Tensor | None]:
    """Not `named_parameters`: FSDP2 and parametrizations swap entries of this dict. 2.13."""
    return module._parameters  # type: ignore[return-value]


#: where `clip_grad_norm_` scales the gradients, however it was imported. 2.13
CLIP_ENTRY = (torch.nn.utils.clip_grad, "_clip_grads_with_norm_")
#: where `torch.func.functional_call` puts other tensors in. 2.13
FUNCTIONAL_ENTRY = (torch.nn.utils.stateless, "_functional_call")


def pending_scale(optimizer: torch.optim.Optimizer) -> Tensor | None:
    """The factor a fused optimizer would still divide its gradients by; GradScaler leaves it there. 2.13."""
    return getattr(optimizer, "grad_scale", None)


def clear_scale(optimizer: torch.optim.Optimizer) -> None:
    optimizer.grad_scale = None  # type: ignore[attr-defined]


def found_inf(optimizer: torch.optim.Optimizer) -> Tensor | None:
    """1 where a fused optimizer is about to skip its step; GradScaler leaves it there. 2.13."""
    return getattr(optimizer, "found_inf", None)


#: children of wrappers that are not part of a name. 2.13
TRANSPARENT = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")
