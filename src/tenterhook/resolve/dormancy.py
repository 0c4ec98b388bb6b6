"""Why a target cannot fire as the model stands."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from tenterhook.plan import Hook
from tenterhook.resolve.targets import Target

FROZEN = "frozen"
NO_OPTIMIZER = "in no optimizer"
NEVER_CALLED = "a container that is never called"
ELSEWHERE = "on another rank"
GONE = "no longer on the model under this name"

#: reasons that no change of requires_grad or of an optimizer ends
LASTING = (NEVER_CALLED, GONE, ELSEWHERE)

#: what to do about each, for a target that was named exactly
REMEDIES = {
    FROZEN: "set requires_grad, or name it by a pattern: then it sleeps until it is unfrozen",
    NO_OPTIMIZER: "give its optimizer to attach, or use grad_accumulated",
    NEVER_CALLED: "name the modules inside it",
}

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


def why_dormant(hook: Hook, target: Target, optimizer_of: Mapping[int, str]) -> str | None:
    """Return why the hook cannot fire at the target now, or None if it can.

    `optimizer_of` maps the id of a parameter to the name of the optimizer that holds it.
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
