"""Name the kinds of raw hooks, by the PyTorch functions that register them."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from tenterhook import torch_internals as private

#: hooks of tensors
TENSOR = ("register_hook", "register_post_accumulate_grad_hook")
FORWARD = ("register_forward_pre_hook", "register_forward_hook")
BACKWARD = ("register_full_backward_pre_hook", "register_full_backward_hook", "register_backward_hook")
#: the backward hooks for which PyTorch passes each output of the module to a setup function
FULL = BACKWARD[:2]
STEP = ("register_step_pre_hook", "register_step_post_hook")
#: the hooks on state dicts that are passed a prefix as their third argument
PREFIXED = ("register_state_dict_post_hook", "register_load_state_dict_pre_hook", *private.STATE_REGISTRARS)
#: the hooks that are passed a state dict that was just made
SAVING = ("register_state_dict_post_hook", private.STATE_REGISTRARS[0])
#: hooks of several tensors, of which PyTorch ignores what they return
MULTI = "register_multi_grad_hook"
#: the hooks that run when a state dict is saved or loaded
STATE = (
    "register_state_dict_pre_hook",
    "register_load_state_dict_post_hook",
    *PREFIXED,
)
#: for each class, the functions that register hooks
WATCHED: dict[Any, tuple[str, ...]] = {
    Tensor: ("register_hook", "register_post_accumulate_grad_hook"),
    nn.Module: (
        "register_forward_pre_hook",
        "register_forward_hook",
        "register_full_backward_pre_hook",
        "register_full_backward_hook",
        "register_backward_hook",
        "register_state_dict_pre_hook",
        "register_state_dict_post_hook",
        "register_load_state_dict_pre_hook",
        "register_load_state_dict_post_hook",
        *private.STATE_REGISTRARS,
    ),
    Optimizer: (
        "register_step_pre_hook",
        "register_step_post_hook",
        "register_state_dict_pre_hook",
        "register_state_dict_post_hook",
        "register_load_state_dict_pre_hook",
        "register_load_state_dict_post_hook",
    ),
}
