"""Dispatch at `input` and `output`: what PyTorch calls in the forward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling, is_exporting

from tenterhook.resolve.targets import Target
from tenterhook.rig.points.graph_entry import ValueDoor
from tenterhook.rig.points.module_registration import DoorFixture
from tenterhook.rig.points.visitor import Visitor, graph_task_id
from tenterhook.rig.runtime.attached_hook import Site
from tenterhook.rig.runtime.registration import Dispatch, Touched
from tenterhook.rig.runtime.step_clock import Clock
from tenterhook.rig.runtime.tensor_tree import map_leaves
from tenterhook.torch_internals import compiler as dynamo


def output_dispatch(
    active: Sequence[Site], serving: Sequence[Site], clock: Clock, door: ValueDoor
) -> Callable[..., Any]:
    visitor = Visitor(active, serving, clock)
    door.serve(visitor)
    always = visitor.always

    @dynamo.skip_dynamo
    def dispatch(module: nn.Module, args: Any, output: Any) -> Any:
        if is_dynamo_compiling():
            return None if is_exporting() else door.traced(output, "output")
        if graph_task_id() != -1:
            fire = visitor.recompute()
            return None if fire is None else map_leaves(output, fire)
        fire = always or visitor.begin()
        if fire is None:
            return None
        if type(output) is Tensor:
            new = fire(output)
            if new is None:
                return None
        elif is_exporting() or visitor.found_none(output, "output"):  # an export has fake tensors
            return None
        else:
            new = map_leaves(output, fire)
            if new is output:
                return None
        visitor.changed(new)
        return new

    return dispatch


def input_dispatch(
    active: Sequence[Site], serving: Sequence[Site], clock: Clock, door: ValueDoor
) -> Callable[..., Any]:
    visitor = Visitor(active, serving, clock)
    door.serve(visitor)
    always = visitor.always

    @dynamo.skip_dynamo
    def dispatch(module: nn.Module, args: Any, kwargs: Any) -> Any:
        if is_dynamo_compiling():
            return None if is_exporting() else door.traced((args, kwargs), "input")
        if graph_task_id() != -1:
            fire = visitor.recompute()
            return None if fire is None else (map_leaves(args, fire), map_leaves(kwargs, fire))
        fire = always or visitor.begin()
        if fire is None:
            return None
        if len(args) == 1 and type(args[0]) is Tensor and not kwargs:
            new = fire(args[0])
            if new is None:
                return None
            given = (new,), kwargs
        elif is_exporting() or visitor.found_none((args, kwargs), "input"):  # an export has fake tensors
            return None
        else:
            given = map_leaves(args, fire), map_leaves(kwargs, fire)
            if given[0] is args and given[1] is kwargs:
                return None
        visitor.changed(given)
        return given

    return dispatch


class ValueFixture(DoorFixture):
    """`input` and `output`."""

    def __init__(self, target: Target, point: str, clock: Clock, rig: int, touched: Touched) -> None:
        super().__init__(target, point, clock, rig, touched)
        self._door: ValueDoor = ValueDoor(clock)

    def _dispatch(self) -> Callable[..., Any]:
        build = input_dispatch if self.point == "input" else output_dispatch
        return Dispatch(build(self._active, self._serving, self.clock, self._door))
