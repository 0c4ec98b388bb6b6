"""Chooses the registration class for each point."""

from __future__ import annotations

from tenterhook.resolve.targets import Target, is_sharded
from tenterhook.rig.points.input_grads import GradInputRegistration
from tenterhook.rig.points.module_grads import GradOutputRegistration
from tenterhook.rig.points.module_values import ValueRegistration
from tenterhook.rig.points.parameter_grads import GatheredRegistration, ParameterRegistration
from tenterhook.rig.points.state_dicts import StateDictRegistration
from tenterhook.rig.runtime.registration import Registration, Touched
from tenterhook.rig.runtime.step_clock import StepClock

_KINDS: dict[str, type[Registration]] = {
    "input": ValueRegistration,
    "output": ValueRegistration,
    "grad_input": GradInputRegistration,
    "grad_output": GradOutputRegistration,
    "grad": ParameterRegistration,
    "grad_accumulated": ParameterRegistration,
}


def make_registration(
    target: Target, point: str, clock: StepClock, rig: int, touched: Touched, *, gathered: bool
) -> Registration:
    """Make the registration for one target and point.

    `gathered` is True if FSDP2 gathers the parameters for a forward pass.
    """
    kind = _KINDS.get(point, StateDictRegistration)
    if gathered and kind is ParameterRegistration and is_sharded(target.parameter()):
        kind = GatheredRegistration
    return kind(target, point, clock, rig, touched)
