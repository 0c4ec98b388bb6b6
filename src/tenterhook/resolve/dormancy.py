"""Determine why a hook cannot fire at a target in the current state of the model."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from tenterhook.plan import Hook
from tenterhook.resolve.targets import Target

FROZEN = "frozen"
NO_OPTIMIZER = "not in an optimizer"
NEVER_CALLED = "a container that is never called"
ELSEWHERE = "on another rank"
GONE = "no longer in the model under this name"

#: reasons that do not depend on requires_grad or on an optimizer
LASTING = (NEVER_CALLED, GONE, ELSEWHERE)

#: remedy for each reason, for a target that was named exactly
REMEDIES = {
    FROZEN: "set requires_grad=True, or use a pattern, so that the hook is dormant until the parameter is unfrozen",
    NO_OPTIMIZER: "pass the optimizer of this parameter to attach, or use grad_accumulated",
    NEVER_CALLED: "name the modules inside the container",
}

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


def why_dormant(hook: Hook, target: Target, optimizer_of: Mapping[int, str]) -> str | None:
    """Return the reason why the hook cannot fire at the target now, or None if the hook can fire.

    `optimizer_of` maps the id of a parameter to the name of the optimizer that holds the parameter.
    """
    if target.kind == "module":
        uncalled = type(target.owner()) in _CONTAINERS
        return NEVER_CALLED if uncalled and hook.point.side != "state" else None
    if target.kind != "parameter":
        return None
    parameter = target.parameter()
    if parameter is None or not parameter.requires_grad:
        return FROZEN
    if hook.point.side == "step" and id(parameter) not in optimizer_of:
        return NO_OPTIMIZER
    return None
