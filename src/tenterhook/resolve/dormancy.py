"""Determine why a hook cannot fire at a target in the current state of the model."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch import nn

from tenterhook import torch_internals as private
from tenterhook.plan import Hook
from tenterhook.resolve.targets import Target

FROZEN = "frozen"
NO_OPTIMIZER = "not in an optimizer"
NEVER_CALLED = "a container that is never called"
SCRIPTED = "a scripted module, which cannot have hooks"
ELSEWHERE = "on another rank"
GONE = "no longer in the model under this name"

#: reasons that end when the parameter is unfrozen or given to an optimizer
PASSING = (FROZEN, NO_OPTIMIZER)

#: remedy for each reason, for a target that was named exactly
REMEDIES = {
    FROZEN: "set requires_grad=True, or use a pattern, so that the hook is dormant until the parameter is unfrozen",
    NO_OPTIMIZER: "pass the optimizer of this parameter to attach, or use grad_accumulated",
    NEVER_CALLED: "name the modules inside the container",
    SCRIPTED: "attach before torch.jit.script, or name another module",
}

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


def is_container(module: nn.Module) -> bool:
    """Return True for a module that is never called itself."""
    return type(module) in _CONTAINERS


def why_dormant(hook: Hook, target: Target, held_by: Mapping[int, Collection[str]]) -> str | None:
    """Return the reason why the hook cannot fire at the target now, or None if the hook can fire.

    `held_by` maps the id of a parameter to the names of the optimizers that hold the parameter.
    """
    if target.kind == "module":
        module = target.owner()
        if isinstance(module, nn.Module) and private.is_scripted(module):
            return SCRIPTED
        uncalled = isinstance(module, nn.Module) and is_container(module)
        return NEVER_CALLED if uncalled and hook.point.side != "state" else None
    if target.kind != "parameter":
        return None
    parameter = target.parameter()
    if parameter is None or not parameter.requires_grad:
        return FROZEN
    if hook.point.side == "step" and id(parameter) not in held_by:
        return NO_OPTIMIZER
    return None
