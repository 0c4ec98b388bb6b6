"""List the points, which are the signals that a hook can receive."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tenterhook.errors import nearest

Kind = Literal["module", "parameter", "tap", "optimizer"]
Side = Literal["forward", "backward", "step", "state"]
PointName = Literal[
    "input",
    "output",
    "grad_output",
    "grad_input",
    "grad",
    "grad_accumulated",
    "grad_final",
    "update",
    "value",
    "value_grad",
    "step_pre",
    "step_post",
    "save_pre",
    "save_post",
    "load_pre",
    "load_post",
]


@dataclass(frozen=True, slots=True)
class Point:
    """One signal, the kinds of target that have it, and the PyTorch function that provides it."""

    name: PointName
    on: tuple[Kind, ...]
    signal: str
    modifies: bool
    #: the PyTorch function that provides the signal
    uses: str
    #: when the hook fires: in the forward pass, in the backward pass, in the optimizer step, or when a state dict is
    #: saved or loaded
    side: Side


_TABLE = (
    Point(
        "input",
        on=("module",),
        signal="each tensor leaf of args and kwargs",
        modifies=True,
        uses="Module.register_forward_pre_hook",
        side="forward",
    ),
    Point(
        "output",
        on=("module",),
        signal="each tensor leaf of the output",
        modifies=True,
        uses="Module.register_forward_hook",
        side="forward",
    ),
    Point(
        "grad_output",
        on=("module",),
        signal="the gradient of each tensor leaf of the output, per call",
        modifies=True,
        uses="Module.register_forward_hook + Tensor.register_hook",
        side="backward",
    ),
    Point(
        "grad_input",
        on=("module",),
        signal="the contribution of this call to the gradient of each distinct input tensor",
        modifies=True,
        uses="Module.register_forward_pre_hook + Tensor.register_hook",
        side="backward",
    ),
    Point(
        "grad",
        on=("parameter",),
        signal="the gradient from each backward pass on this rank, before accumulation",
        modifies=True,
        uses="Tensor.register_hook",
        side="backward",
    ),
    Point(
        "grad_accumulated",
        on=("parameter",),
        signal="the `.grad` on this rank, after accumulation",
        modifies=True,
        uses="Tensor.register_post_accumulate_grad_hook",
        side="backward",
    ),
    Point(
        "grad_final",
        on=("parameter",),
        signal="the gradient that the optimizer is about to use",
        modifies=True,
        uses="Optimizer.register_step_pre_hook",
        side="step",
    ),
    Point(
        "update",
        on=("parameter",),
        signal="the change in the parameter during the step: new value minus old value",
        modifies=False,
        uses="Optimizer.register_step_pre_hook + register_step_post_hook",
        side="step",
    ),
    Point(
        "value",
        on=("tap",),
        signal="a tensor that was named with th.tap",
        modifies=True,
        uses="tenterhook.tap",
        side="forward",
    ),
    Point(
        "value_grad",
        on=("tap",),
        signal="the gradient of a tensor that was named with th.tap",
        modifies=True,
        uses="tenterhook.tap + Tensor.register_hook",
        side="backward",
    ),
    Point(
        "step_pre",
        on=("optimizer",),
        signal="the optimizer, before its step",
        modifies=False,
        uses="Optimizer.register_step_pre_hook",
        side="step",
    ),
    Point(
        "step_post",
        on=("optimizer",),
        signal="the optimizer, after its step",
        modifies=False,
        uses="Optimizer.register_step_post_hook",
        side="step",
    ),
    Point(
        "save_pre",
        on=("module", "optimizer"),
        signal="the key prefix of the state dict that is about to be saved",
        modifies=False,
        uses="register_state_dict_pre_hook",
        side="state",
    ),
    Point(
        "save_post",
        on=("module", "optimizer"),
        signal="the state dict that was saved; it can be changed in place",
        modifies=False,
        uses="register_state_dict_post_hook",
        side="state",
    ),
    Point(
        "load_pre",
        on=("module", "optimizer"),
        signal="the state dict that is about to be loaded; it can be changed in place",
        modifies=False,
        uses="register_load_state_dict_pre_hook",
        side="state",
    ),
    Point(
        "load_post",
        on=("module", "optimizer"),
        signal="the incompatible keys of the loaded state dict, or None for an optimizer",
        modifies=False,
        uses="register_load_state_dict_post_hook",
        side="state",
    ),
)

POINTS: dict[str, Point] = {point.name: point for point in _TABLE}

#: points that exist only in training, whatever mode the model is in: many people train in eval() to freeze batch norm
TRAINING = frozenset(["grad_accumulated", "grad_final", "update", "step_pre", "step_post"])

#: words that people use for a point, each with the points that they may mean
_OTHER_WORDS = {
    "forward": ("output", "input"),
    "activation": ("output",),
    "forward_pre": ("input",),
    "backward": ("grad_output", "grad"),
    "gradient": ("grad", "grad_final"),
    "step": ("step_pre", "step_post", "update"),
    "optimizer": ("step_pre", "step_post", "update"),
    "state_dict": ("save_post", "load_pre"),
    "save": ("save_pre", "save_post"),
    "load": ("load_pre", "load_post"),
}


def unknown_point(name: object) -> tuple[str, str]:
    """Return what happened and what to do, as texts, for a point that does not exist."""
    if not isinstance(name, str):
        first = next(iter(name), None) if isinstance(name, Iterable) else None
        example = first if first in POINTS else "grad"
        return (
            f"at= is an object of type {type(name).__name__}, not the name of a point",
            f'write at="{example}"; for several points, write a hook for each',
        )
    word = name.lower().replace("-", "_").replace(" ", "_").removesuffix("s")
    close = list(_OTHER_WORDS.get(word, ())) or nearest(name, POINTS, 1)
    if word in ("weight", "parameter", "param", "bia", "bias"):
        return (
            f"the point {name!r} does not exist; parameters are selected with on=",
            'write on="**.weight" with at="grad_final" (the gradient) or at="update" (the change in a step)',
        )
    if not close:
        return f"the point {name!r} does not exist", f"use one of {', '.join(POINTS)}"
    near = f"the nearest {'is' if len(close) == 1 else 'are'} {' and '.join(map(repr, close))}"
    return (
        f"the point {name!r} does not exist; {near}",
        f'write at="{close[0]}", or run `tenterhook points` to list all points',
    )


#: PyTorch register functions that tenterhook does not use, each with the reason
NOT_OFFERED: dict[str, str] = {
    "Module.register_backward_hook": "legacy; passes wrong input gradients for composite modules; use grad_input",
    "Module.register_full_backward_hook": "breaks in-place ops and misses structured outputs; use grad_input",
    "Module.register_full_backward_pre_hook": "breaks in-place ops and misses structured outputs; use grad_output",
    "register_module_*_hook (global)": "global state: fires for every model in the process",
    "Optimizer step hooks (global)": "global state: fires for every optimizer in the process",
    "Node.register_hook, Node.register_prehook": "a Node has no name that is stable across forward passes",
    "graph.register_multi_grad_hook": "fires before the last gradient is accumulated; use grad_final",
    "graph.saved_tensors_hooks": "an inner pair of hooks disables an outer pair, such as one for activation offloading",
    "DistributedDataParallel.register_comm_hook": "a model can have only one such hook, which cannot be removed",
}
