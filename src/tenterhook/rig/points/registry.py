"""Install: the fixture for each point, on modules and their state."""

from __future__ import annotations

from tenterhook.resolve.targets import Target, is_sharded
from tenterhook.rig.points.input_grads import GradInputFixture
from tenterhook.rig.points.module_grads import GradOutputFixture
from tenterhook.rig.points.module_values import ValueFixture
from tenterhook.rig.points.parameter_grads import GatheredFixture, ParameterFixture
from tenterhook.rig.points.state_dicts import StateFixture
from tenterhook.rig.runtime.registration import Fixture, Touched
from tenterhook.rig.runtime.step_clock import Clock

_FIXTURES: dict[str, type[Fixture]] = {
    "input": ValueFixture,
    "output": ValueFixture,
    "grad_input": GradInputFixture,
    "grad_output": GradOutputFixture,
    "grad": ParameterFixture,
    "grad_accumulated": ParameterFixture,
}


def make_fixture(target: Target, point: str, clock: Clock, rig: int, touched: Touched, *, gathered: bool) -> Fixture:
    """`gathered`: FSDP2 puts its parameters together for a forward."""
    kind = _FIXTURES.get(point, StateFixture)
    if gathered and kind is ParameterFixture and is_sharded(target.parameter()):
        kind = GatheredFixture
    return kind(target, point, clock, rig, touched)
