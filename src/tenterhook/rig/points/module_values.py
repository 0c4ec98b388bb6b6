"""Implements the points `input` and `output` with PyTorch's forward hooks and forward pre-hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling

from tenterhook.resolve.targets import Target
from tenterhook.rig.points.graph_entry import ValueCallback
from tenterhook.rig.points.leaf_dispatcher import LeafDispatcher, graph_task_id
from tenterhook.rig.points.module_registration import TracedRegistration
from tenterhook.rig.runtime.registration import REMOVED, Dispatch, Serving, Touched
from tenterhook.rig.runtime.step_clock import StepClock
from tenterhook.torch_internals import compiler as dynamo
from tenterhook.torch_internals.compiler import is_exporting


def output_dispatch(
    serving: Serving, clock: StepClock, callback: ValueCallback
) -> Callable[[nn.Module, Any, Any], Any]:
    """Return the forward hook that fires a rig's hooks on a module's outputs."""
    dispatcher = LeafDispatcher(serving.active, serving.all, clock)
    callback.set_hooks(dispatcher)
    always = dispatcher.always

    @dynamo.skip_dynamo
    def dispatch(module: nn.Module, args: Any, output: Any) -> Any:
        if is_dynamo_compiling():
            return None if is_exporting() else callback.traced(output, "output")
        if graph_task_id() != -1:
            return dispatcher.replay_on_tree(output)
        fire = always or dispatcher.begin()
        if fire is None:
            return None
        if type(output) is not Tensor:
            return dispatcher.fire_on_tree(output, fire, "output")
        new = fire(output)
        if new is not None:
            dispatcher.changed(new)
        return new

    return dispatch


def input_dispatch(serving: Serving, clock: StepClock, callback: ValueCallback) -> Callable[[nn.Module, Any, Any], Any]:
    """Return the forward pre-hook that fires a rig's hooks on a module's inputs."""
    dispatcher = LeafDispatcher(serving.active, serving.all, clock)
    callback.set_hooks(dispatcher)
    always = dispatcher.always

    @dynamo.skip_dynamo
    def dispatch(module: nn.Module, args: Any, kwargs: Any = REMOVED) -> Any:
        if kwargs is REMOVED:
            return None
        if is_dynamo_compiling():
            return None if is_exporting() else callback.traced((args, kwargs), "input")
        if graph_task_id() != -1:
            return dispatcher.replay_on_tree((args, kwargs))
        fire = always or dispatcher.begin()
        if fire is None:
            return None
        if len(args) != 1 or type(args[0]) is not Tensor or kwargs:
            return dispatcher.fire_on_tree((args, kwargs), fire, "input")
        new = fire(args[0])
        if new is None:
            return None
        dispatcher.changed(new)
        return (new,), kwargs

    return dispatch


class ValueRegistration(TracedRegistration):
    """Registers a module's hooks at `input` or `output`."""

    def __init__(self, target: Target, point: str, clock: StepClock, rig: int, touched: Touched) -> None:
        super().__init__(target, point, clock, rig, touched)
        self._callback: ValueCallback = ValueCallback(clock)

    def _dispatch(self) -> Callable[..., Any]:
        build = input_dispatch if self.point == "input" else output_dispatch
        return Dispatch(build(self.serving, self.clock, self._callback))
