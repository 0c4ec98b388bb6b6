"""Points: which signal a hook is about. A closed table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["module", "parameter", "tap", "optimizer"]
Side = Literal["forward", "backward", "step", "state"]


@dataclass(frozen=True, slots=True)
class Point:
    name: str
    on: tuple[Kind, ...]
    signal: str
    modifies: bool
    #: the PyTorch function the point stands on
    stands_on: str
    #: when it fires: in the forward pass, in the backward pass, at the optimizer's step, at a state_dict
    side: Side


POINTS: dict[str, Point] = {
    p.name: p
    for p in (
        Point("input", ("module",), "each tensor leaf of args and kwargs", True,
              "Module.register_forward_pre_hook", "forward"),
        Point("output", ("module",), "each tensor leaf of the output", True,
              "Module.register_forward_hook", "forward"),
        Point("grad_output", ("module",), "gradient of what this call returned, per leaf", True,
              "Module.register_forward_hook + Tensor.register_hook", "backward"),
        Point("grad_input", ("module",), "this call's contribution to the gradient of its inputs, per distinct tensor",
              True, "Module.register_forward_pre_hook + Tensor.register_hook", "backward"),
        Point("grad", ("parameter",), "each backward's contribution, this rank, before accumulation", True,
              "Tensor.register_hook", "backward"),
        Point("grad_accumulated", ("parameter",), ".grad of this rank after accumulation", True,
              "Tensor.register_post_accumulate_grad_hook", "backward"),
        Point("grad_final", ("parameter",), "the gradient the optimizer is about to use", True,
              "Optimizer.register_step_pre_hook", "step"),
        Point("update", ("parameter",), "what the optimizer did to it: new minus old", False,
              "Optimizer.register_step_pre_hook + register_step_post_hook", "step"),
        Point("value", ("tap",), "a tensor that code named with th.tap", True, "tenterhook.tap", "forward"),
        Point("value_grad", ("tap",), "the gradient of a tap", True, "tenterhook.tap + Tensor.register_hook",
              "backward"),
        Point("step_pre", ("optimizer",), "the optimizer, before its step", False,
              "Optimizer.register_step_pre_hook", "step"),
        Point("step_post", ("optimizer",), "the optimizer, after its step", False,
              "Optimizer.register_step_post_hook", "step"),
        Point("save_pre", ("module", "optimizer"), "the prefix of the keys about to be saved", False,
              "register_state_dict_pre_hook", "state"),
        Point("save_post", ("module", "optimizer"), "the state dict, to be changed in place", False,
              "register_state_dict_post_hook", "state"),
        Point("load_pre", ("module", "optimizer"), "the state dict about to be loaded, to be changed in place", False,
              "register_load_state_dict_pre_hook", "state"),
        Point("load_post", ("module", "optimizer"), "the incompatible keys", False,
              "register_load_state_dict_post_hook", "state"),
    )
}  # fmt: skip

#: PyTorch's register functions that no point stands on, and why
NOT_OFFERED: dict[str, str] = {
    "Module.register_backward_hook": "legacy: its grad_input is wrong for composite modules; use grad_input",
    "Module.register_full_backward_hook": "breaks in-place ops and misses structured outputs; use grad_input",
    "Module.register_full_backward_pre_hook": "breaks in-place ops and misses structured outputs; use grad_output",
    "register_module_*_hook (global)": "global state: every model of the process would fire",
    "Optimizer step hooks (global)": "global state: every optimizer of the process would fire",
    "Node.register_hook, Node.register_prehook": "a Node has no name that survives the next forward",
    "graph.register_multi_grad_hook": "fires before the last gradient is accumulated; use grad_final",
    "graph.saved_tensors_hooks": "an inner pair disables an enclosing one (offload)",
    "DistributedDataParallel.register_comm_hook": "one for each model and not removable",
}
