"""Resolve: what a plan means on this model. Every claim is checked here; nothing is touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from tenterhook.actions import Definition, Registry, plain_definition
from tenterhook.errors import ActionError, DormantError, ExpectError, NoMatchError, TenterhookError, nearest
from tenterhook.plan import Action, Hook
from tenterhook.plan.hook import OnError, Phase
from tenterhook.resolve.model_view import Ground
from tenterhook.resolve.refusals import _check_graphs, _check_ground, _check_over, _check_sharded, check_action
from tenterhook.resolve.targets import Target, type_names

#: why a site sleeps whose target was taken off the model
ELSEWHERE = "on another rank"


FROZEN = "frozen"


NO_OPTIMIZER = "in no optimizer"


NEVER_CALLED = "a container that is never called"


@dataclass(frozen=True, slots=True)
class Claim:
    """One hook, resolved: its code, its typed parameters, its targets."""

    hook: Hook
    definition: Definition
    params: Mapping[str, Any]
    targets: tuple[Target, ...]
    #: targets that cannot fire as the model stands, and why
    dormant: Mapping[str, str]
    phase: Phase
    on_error: OnError
    #: its partial results are merged over ranks: some have a part of a tensor, or not all have the same targets
    merges: bool = False
    #: the lowest rank that has a target, where that is not the first; targets of other ranks are named here, too
    owners: Mapping[str, int] = field(default_factory=dict)

    def first(self, target: str) -> int:
        return self.owners.get(target, 0)

    @property
    def over_hook(self) -> bool:
        return self.params.get("over") == "hook"


def resolve(
    hooks: tuple[Hook, ...], ground: Ground, *, actions: Registry, tensors: Mapping[str, Tensor]
) -> tuple[Claim, ...]:
    return tuple(_claim(hook, ground, actions, tensors) for hook in hooks)


def _claim(hook: Hook, ground: Ground, actions: Registry, tensors: Mapping[str, Tensor]) -> Claim:
    try:
        definition, params = defined(hook, actions, tensors)
        check_action(hook, definition, params)
        _check_ground(hook, definition, ground)
        # On several ranks another may have what is not here; they look at that together.
        targets = find_targets(hook, ground, strict=ground.ranks == 1)
        _check_graphs(hook, targets, ground)
        _check_over(hook, params, targets, ground)
        dormant = {t.name: why for t in targets if (why := why_dormant(hook, t, ground.optimized))}
        _check_exact(hook, targets, dormant)
        if ground.names.sharded:
            _check_sharded(hook, definition, targets, ground)
    except TenterhookError as error:
        raise error.located(hook=hook.id, point=hook.at) from error.__cause__
    modifies = definition.modifies
    observes = not modifies and not definition.plain
    return Claim(
        hook, definition, params, targets, dormant,
        phase=hook.when.phase or ("train" if observes else "any"),
        on_error=hook.on_error or ("mute" if observes else "raise"),
    )  # fmt: skip


def defined(hook: Hook, actions: Registry, tensors: Mapping[str, Tensor]) -> tuple[Definition, dict[str, Any]]:
    """The code behind a hook's action, and its parameters, typed and complete."""
    if not isinstance(hook.do, Action):
        return plain_definition(hook.do, at=hook.at), {}
    definition = actions.get(hook.do.name)
    params = definition.convert(hook.do.params)
    for name in definition.tensor_params:
        given = params[name]
        if given not in tensors:
            raise ActionError(
                f"{definition.name} wants the tensor {given!r}, which was not given",
                remedy=f'attach(..., tensors={{"{given}": ...}})',
            )
        params[name] = tensors[given]
    return definition, params


def find_targets(hook: Hook, ground: Ground, *, strict: bool = True) -> tuple[Target, ...]:
    """What a hook's selector names; `strict` holds it to naming something, and as much as it expects."""
    if hook.point.on == ("tap",):
        return ()
    candidates = ground.names.of_kinds(hook.point.on)
    selector = hook.selector
    typed = any("type:" in p for p in selector.patterns)
    found = []
    for name, target in candidates.items():
        types = type_names(target.owner()) if typed and target.kind != "optimizer" else ()  # type: ignore[arg-type]
        if selector.matches(name, types) or any(selector.matches(a, types) for a in target.aliases):
            found.append(target)
    if strict:
        check_targets(hook, ground, found)
    return tuple(found)


def check_targets(hook: Hook, ground: Ground, found: Sequence[Target]) -> None:
    """Whether the selector names something, and as much as the hook expects."""
    if hook.point.on == ("tap",):
        return
    candidates, selector = ground.names.of_kinds(hook.point.on), hook.selector
    known = {n for t in candidates.values() for n in (t.name, *t.aliases)} if selector.exact else set()
    unknown = [p for p in selector.exact if p not in known]
    wanted = unknown[0] if unknown else " ".join(selector.patterns)
    if (unknown or not found) and hook.expect != 0:
        kind = " or ".join(hook.point.on)
        close = nearest(wanted, list(candidates))
        others = ground.names.of_kinds(("module", "parameter"))
        other = f"; it is a {others[wanted].kind}" if wanted in others else ""
        remedy = f"the nearest names are {', '.join(map(repr, close))}" if close else f"the model has no such {kind}"
        if other and kind == "module":
            remedy = (
                f"name the module it is in, {wanted.rpartition('.')[0] or '.'!r}, or use a point of parameters: grad"
            )
        raise NoMatchError(
            f"no {kind} is named {wanted!r}{other}",
            remedy=remedy,
        )
    check_expected(hook, [target.name for target in found])


def check_expected(hook: Hook, found: Sequence[str]) -> None:
    if not found and hook.expect != 0 and hook.point.on != ("tap",):
        raise NoMatchError(f"no {' or '.join(hook.point.on)} is named {' '.join(hook.selector.patterns)!r} on any rank")
    if hook.expect is not None and len(found) != hook.expect:
        sample = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
        raise ExpectError(
            f"{len(found)} targets match, {hook.expect} were expected: {sample or 'none'}",
            remedy=f"narrow `on`, or expect={len(found)}",
        )


def why_dormant(hook: Hook, target: Target, optimized: Mapping[int, str]) -> str | None:
    if target.kind == "module":
        forward = target.owner()
        uncalled = type(forward) in (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
        return NEVER_CALLED if uncalled and hook.point.side != "state" else None
    if target.kind != "parameter":
        return None
    parameter = target.parameter()
    if parameter is None or not parameter.requires_grad:
        return FROZEN
    if hook.point.side == "step" and id(parameter) not in optimized:
        return NO_OPTIMIZER
    return None


_REMEDIES = {
    FROZEN: "set requires_grad, or name it by a pattern: then it sleeps until it is unfrozen",
    NO_OPTIMIZER: "give its optimizer to attach, or use grad_accumulated",
    NEVER_CALLED: "name the modules inside it",
}


def _check_exact(hook: Hook, targets: tuple[Target, ...], dormant: Mapping[str, str]) -> None:
    if not dormant:
        return
    exact = set(hook.selector.exact)
    for target in targets:
        why = dormant.get(target.name)
        if why and exact.intersection((target.name, *target.aliases)):
            raise DormantError(f"it cannot fire: {why}", target=target.name, remedy=_REMEDIES[why])
    if len(dormant) == len(targets) and set(dormant.values()) == {NO_OPTIMIZER}:
        raise DormantError(
            f"none of its {len(targets)} targets is in an optimizer that was given",
            remedy="give attach the optimizer that trains this model",
        )
