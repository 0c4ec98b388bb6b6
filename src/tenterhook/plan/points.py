"""Points: the signals that a hook can be at. A closed table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["module", "parameter", "tap", "optimizer"]
Side = Literal["forward", "backward", "step", "state"]


@dataclass(frozen=True, slots=True)
class Point:
    """One signal: what has it, what it is, and the PyTorch function that gives it."""

    name: str
    on: tuple[Kind, ...]
    signal: str
    modifies: bool
    #: the PyTorch function the point stands on
    stands_on: str
    #: when it fires: in the forward pass, in the backward pass, at the optimizer's step, at a state_dict
    side: Side


_TABLE = (
    Point(
        "input",
        on=("module",),
        signal="each tensor leaf of args and kwargs",
        modifies=True,
        stands_on="Module.register_forward_pre_hook",
        side="forward",
    ),
    Point(
        "output",
        on=("module",),
        signal="each tensor leaf of the output",
        modifies=True,
        stands_on="Module.register_forward_hook",
        side="forward",
    ),
    Point(
        "grad_output",
        on=("module",),
        signal="gradient of what this call returned, per leaf",
        modifies=True,
        stands_on="Module.register_forward_hook + Tensor.register_hook",
        side="backward",
    ),
    Point(
        "grad_input",
        on=("module",),
        signal="this call's contribution to the gradient of its inputs, per distinct tensor",
        modifies=True,
        stands_on="Module.register_forward_pre_hook + Tensor.register_hook",
        side="backward",
    ),
    Point(
        "grad",
        on=("parameter",),
        signal="each backward's contribution, this rank, before accumulation",
        modifies=True,
        stands_on="Tensor.register_hook",
        side="backward",
    ),
    Point(
        "grad_accumulated",
        on=("parameter",),
        signal=".grad of this rank after accumulation",
        modifies=True,
        stands_on="Tensor.register_post_accumulate_grad_hook",
        side="backward",
    ),
    Point(
        "grad_final",
        on=("parameter",),
        signal="the gradient the optimizer is about to use",
        modifies=True,
        stands_on="Optimizer.register_step_pre_hook",
        side="step",
    ),
    Point(
        "update",
        on=("parameter",),
        signal="what the optimizer did to it: new minus old",
        modifies=False,
        stands_on="Optimizer.register_step_pre_hook + register_step_post_hook",
        side="step",
    ),
    Point(
        "value",
        on=("tap",),
        signal="a tensor that code named with th.tap",
        modifies=True,
        stands_on="tenterhook.tap",
        side="forward",
    ),
    Point(
        "value_grad",
        on=("tap",),
        signal="the gradient of a tap",
        modifies=True,
        stands_on="tenterhook.tap + Tensor.register_hook",
        side="backward",
    ),
    Point(
        "step_pre",
        on=("optimizer",),
        signal="the optimizer, before its step",
        modifies=False,
        stands_on="Optimizer.register_step_pre_hook",
        side="step",
    ),
    Point(
        "step_post",
        on=("optimizer",),
        signal="the optimizer, after its step",
        modifies=False,
        stands_on="Optimizer.register_step_post_hook",
        side="step",
    ),
    Point(
        "save_pre",
        on=("module", "optimizer"),
        signal="the prefix of the keys about to be saved",
        modifies=False,
        stands_on="register_state_dict_pre_hook",
        side="state",
    ),
    Point(
        "save_post",
        on=("module", "optimizer"),
        signal="the state dict, to be changed in place",
        modifies=False,
        stands_on="register_state_dict_post_hook",
        side="state",
    ),
    Point(
        "load_pre",
        on=("module", "optimizer"),
        signal="the state dict about to be loaded, to be changed in place",
        modifies=False,
        stands_on="register_load_state_dict_pre_hook",
        side="state",
    ),
    Point(
        "load_post",
        on=("module", "optimizer"),
        signal="the incompatible keys",
        modifies=False,
        stands_on="register_load_state_dict_post_hook",
        side="state",
    ),
)

POINTS: dict[str, Point] = {point.name: point for point in _TABLE}

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
