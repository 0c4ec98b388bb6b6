"""Implements the point `grad_output` with tensor hooks on a module's outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling

from tenterhook.resolve.targets import Target
from tenterhook.rig.points.gradient_hooks import NO_GRAD, NOTHING_NEEDS_GRAD, GradientHooks, skip_call
from tenterhook.rig.points.graph_entry import GradientCallback
from tenterhook.rig.points.leaf_dispatcher import is_grad_enabled, no_tensor
from tenterhook.rig.points.module_registration import TracedRegistration
from tenterhook.rig.runtime.attached_hook import Site
from tenterhook.rig.runtime.registration import REMOVED, Dispatch, Touched
from tenterhook.rig.runtime.step_clock import StepClock
from tenterhook.rig.runtime.tensor_tree import leaves, map_leaves
from tenterhook.torch_internals import compiler as dynamo
from tenterhook.torch_internals.compiler import is_exporting


def grad_output_dispatch(sites: Sequence[Site], clock: StepClock, callback: GradientCallback) -> Callable[..., Any]:
    """Return the forward hook that registers tensor hooks on a module's output."""
    hooks = GradientHooks(sites, clock)
    callback.set_hooks(hooks)

    @dynamo.skip_dynamo
    def dispatch(module: nn.Module, args: Any, kwargs: Any, output: Any = REMOVED) -> Any:
        if is_exporting() or output is REMOVED:
            return None
        if is_dynamo_compiling():
            return callback.traced(module, output)
        if not sites:
            return None
        call = hooks.begin()
        if not is_grad_enabled():
            return skip_call(sites, NO_GRAD)
        key = (id(module), "grad_output")
        if type(output) is Tensor:
            if not output.requires_grad:
                return skip_call(sites, NOTHING_NEEDS_GRAD)
            fire = hooks.on(output, call, 0)
            if output.grad_fn is not None and not _is_among(output, args, kwargs):
                hooks.hook(output, fire, key)
                return None
            return hooks.alias(output, fire, key)
        leaf, found = -1, False

        # One leaf may be computed from another inside the module, so each leaf needs its own alias.
        def visit(x: Tensor) -> Tensor | None:
            nonlocal leaf, found
            leaf += 1
            if not x.requires_grad:
                return None
            found = True
            return hooks.alias(x, hooks.on(x, call, leaf), key)

        new = map_leaves(output, visit)
        if not found:
            skip_call(sites, NOTHING_NEEDS_GRAD if leaves(output) else no_tensor(output, "output"))
        return new

    return dispatch


def _is_among(tensor: Tensor, args: Any, kwargs: Any) -> bool:
    if len(args) == 1 and not kwargs and type(args[0]) is Tensor:
        return tensor is args[0]
    return any(tensor is x for x in leaves(args)) or any(tensor is x for x in leaves(kwargs))


class GradOutputRegistration(TracedRegistration):
    """Registers a module's hooks at `grad_output`."""

    stage = 1

    def __init__(self, target: Target, point: str, clock: StepClock, rig: int, touched: Touched) -> None:
        super().__init__(target, point, clock, rig, touched)
        self._callback: GradientCallback = GradientCallback(clock)

    def _dispatch(self) -> Callable[..., Any]:
        return Dispatch(grad_output_dispatch(self.serving.active, self.clock, self._callback))
