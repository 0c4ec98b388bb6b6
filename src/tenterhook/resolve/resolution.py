"""Resolve hooks against a model: find their code and targets, and check them without changing the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from tenterhook.actions import Definition, Registry, plain_definition
from tenterhook.errors import ActionError, DormantError, ExpectError, NoMatchError, PlanError, TenterhookError
from tenterhook.plan import TRAINING, Action, Hook
from tenterhook.plan.hook import OnError, Phase
from tenterhook.resolve.dormancy import NO_OPTIMIZER, REMEDIES, why_dormant
from tenterhook.resolve.model_view import ModelView
from tenterhook.resolve.refusals import (
    check_action,
    check_compiled,
    check_model,
    check_over,
    check_sharded,
    check_torch,
)
from tenterhook.resolve.sharding import EVERY
from tenterhook.resolve.suggestions import suggest
from tenterhook.resolve.targets import Target, type_names


@dataclass(frozen=True, slots=True)
class ResolvedHook:
    """A hook that was resolved against a model, with its code, its converted parameters and its targets."""

    hook: Hook
    definition: Definition[...]
    params: Mapping[str, Any]
    targets: tuple[Target, ...]
    #: for each target at which the hook cannot fire now, the reason
    dormant: Mapping[str, str]
    phase: Phase
    on_error: OnError
    #: True if partial results are merged over ranks, for example because ranks hold shards or have different targets
    merges: bool = False
    #: True if a tensor that is not sharded is the same on all ranks during the passes, as in tensor parallelism
    has_replicas: bool = False
    #: the lowest rank of the group
    first: int = 0
    #: for each target that not all ranks have, the lowest rank that has it
    owners: Mapping[str, int] = field(default_factory=dict)
    #: targets of which each rank has its own part
    parts: frozenset[str] = frozenset()

    def counted_rank(self, target: str) -> int:
        """Return the rank whose replica of the target is counted in a merge, or EVERY if each rank has a part of it."""
        return EVERY if target in self.parts else self.first_rank(target)

    def first_rank(self, target: str) -> int:
        """Return the lowest rank that has the target."""
        return self.owners.get(target, self.first)

    @property
    def over_hook(self) -> bool:
        return self.params.get("over") == "hook"


@dataclass(frozen=True, slots=True)
class Resolution:
    """The resolved hooks of a plan, and the view of the model against which they were resolved."""

    hooks: tuple[ResolvedHook, ...]
    view: ModelView

    def __iter__(self) -> Iterator[ResolvedHook]:
        return iter(self.hooks)

    def __len__(self) -> int:
        return len(self.hooks)

    def map(self, change: Callable[[ResolvedHook], ResolvedHook]) -> Resolution:
        """Return a copy in which each hook is replaced by `change(hook)`."""
        return replace(self, hooks=tuple(map(change, self.hooks)))


def resolve(hooks: Iterable[Hook], view: ModelView, *, actions: Registry, tensors: Mapping[str, Tensor]) -> Resolution:
    """Find the code and the targets of each hook, and check that the model supports the hook."""
    resolved: list[ResolvedHook] = []
    work = 0
    for hook in hooks:
        before = hook.selector.work
        resolved.append(_resolve_hook(hook, view, actions, tensors))
        work += hook.selector.work - before
        _check_work(work, view)
    return Resolution(tuple(resolved), view)


def _check_work(work: int, view: ModelView) -> None:
    """Raise an error if globs have examined too many characters. A small plan file could keep a program busy for long.

    Globs share the work for names with a common beginning, so a usual plan needs a small part of this limit.
    """
    if work <= MIN_WORK:
        return
    limit = max(MIN_WORK, MAX_READINGS * sum(map(len, view.targets.of_kinds(("module", "parameter")))))
    if work > limit:
        raise PlanError(
            f"the patterns of the plan examine more than {limit:,} characters of the model's names",
            remedy='use fewer patterns with stars, or begin each with a name, as in "decoder.layers.*.weight"',
        )


def _resolve_hook(hook: Hook, view: ModelView, actions: Registry, tensors: Mapping[str, Tensor]) -> ResolvedHook:
    try:
        definition, params = find_action(hook, actions, tensors)
        check_action(hook, definition, params)
        check_torch(hook, definition, view)
        check_model(hook, definition, view)
        # With several ranks, another rank may have the targets. `agreement` checks them for all ranks together.
        targets = find_targets(hook, view, strict=view.ranks == 1)
        check_compiled(hook, targets, view)
        check_over(hook, params, targets, view)
        dormant = {t.name: why for t in targets if (why := why_dormant(hook, t, view.held_by))}
        _check_exact(hook, targets, dormant)
        if view.targets.sharded:
            check_sharded(hook, definition, targets, view)
    except TenterhookError as error:
        raise error.located(hook=hook.id, point=hook.at) from error.__cause__
    modifies = definition.modifies
    observes = not modifies and not definition.plain
    return ResolvedHook(
        hook,
        definition,
        params,
        targets,
        dormant,
        phase=_phase(hook, observes=observes),
        on_error=hook.on_error or ("mute" if observes else "raise"),
    )


def find_action(hook: Hook, actions: Registry, tensors: Mapping[str, Tensor]) -> tuple[Definition[...], dict[str, Any]]:
    """Return the definition of the hook's action, and the action's parameters, converted to their declared types."""
    if not isinstance(hook.do, Action):
        return plain_definition(hook.do, at=hook.at), {}
    definition = actions.get(hook.do.name)
    params = definition.convert(hook.do.params)
    available = {**hook.do.tensors, **tensors}
    for name in definition.tensor_params:
        given = params[name]
        if given not in available:
            raise ActionError(
                f"{definition.name} needs the tensor {given!r}, which was not passed",
                remedy=f'pass the tensor: attach(..., tensors={{"{given}": ...}})',
            )
        if not isinstance(available[given], Tensor):
            kind = type(available[given]).__name__
            raise ActionError(
                f"{definition.name} needs a tensor, but tensors[{given!r}] is an object of type {kind}",
                remedy=f'pass a tensor: attach(..., tensors={{"{given}": torch.tensor(...)}})',
            )
        params[name] = available[given]
    return definition, params


def find_targets(hook: Hook, view: ModelView, *, strict: bool = True) -> tuple[Target, ...]:
    """Return the targets that the selector of a hook matches.

    If `strict` is True and the selector matches no targets or an unexpected number of targets, raise an error.
    """
    if hook.point.on == ("tap",):
        return ()
    candidates = view.targets.of_kinds(hook.point.on)
    selector = hook.selector
    typed = any("type:" in p for p in selector.patterns)
    found = []
    before = selector.work
    for number, (name, target) in enumerate(candidates.items()):
        if number % 64 == 63:
            _check_work(selector.work - before, view)
        owner = target.owner() if typed else None
        types = type_names(owner) if isinstance(owner, nn.Module) else ()
        if selector.matches(name, types) or any(selector.matches(a, types) for a in target.aliases):
            found.append(target)
    if strict:
        check_targets(hook, view, found)
    return tuple(found)


def check_targets(hook: Hook, view: ModelView, found: Sequence[Target]) -> None:
    """Raise an error if the selector matches no targets or an unexpected number of targets."""
    if hook.point.on == ("tap",):
        return
    candidates, selector = view.targets.of_kinds(hook.point.on), hook.selector
    known = {n for t in candidates.values() for n in (t.name, *t.aliases)} if selector.exact else set()
    unknown = [p for p in selector.exact if p not in known]
    wanted = unknown[0] if unknown else " ".join(selector.patterns)
    if (unknown or not found) and hook.expect != 0:
        kind = " or ".join(hook.point.on)
        others = view.targets.of_kinds(("module", "parameter"))
        other = f"; that is the name of a {others[wanted].kind}" if wanted in others else ""
        raise NoMatchError(
            f"no {kind} {'is named' if unknown else 'matches'} {wanted!r}{other}",
            remedy=suggest(hook, wanted, candidates, others),
        )
    check_expected(hook, [target.name for target in found])


def _phase(hook: Hook, *, observes: bool) -> Phase:
    """Return the phase in which a hook fires.

    Some points exist only in training, whatever mode the model is in. If the plan names no phase, observers of forward
    passes leave out evaluation.
    """
    if hook.at in TRAINING:
        return "any"
    return hook.when.phase or ("train" if observes and hook.point.side == "forward" else "any")


#: number of characters of names that the globs of a plan may examine, and how often they may read all names of a
#: larger model; a million characters take about a second
MIN_WORK, MAX_READINGS = 1 << 22, 64


def check_expected(hook: Hook, found: Sequence[str]) -> None:
    if not found and hook.expect != 0 and hook.point.on != ("tap",):
        raise NoMatchError(f"no {' or '.join(hook.point.on)} matches {' '.join(hook.selector.patterns)!r} on any rank")
    if hook.expect is not None and len(found) != hook.expect:
        sample = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
        raise ExpectError(
            f"found {len(found)} target{'s' * (len(found) != 1)}, expected {hook.expect}: {sample or 'none'}",
            remedy=f"correct `on`, or write expect={len(found)}",
        )


def _check_exact(hook: Hook, targets: tuple[Target, ...], dormant: Mapping[str, str]) -> None:
    if not dormant:
        return
    exact = set(hook.selector.exact)
    for target in targets:
        why = dormant.get(target.name)
        if why and exact.intersection((target.name, *target.aliases)):
            raise DormantError(
                f"the hook cannot fire because the target is {why}", target=target.name, remedy=REMEDIES[why]
            )
    if len(dormant) == len(targets) and set(dormant.values()) == {NO_OPTIMIZER}:
        raise DormantError(
            f"none of the hook's {len(targets)} targets is in an optimizer that was passed to attach",
            remedy="call attach with the optimizer that trains this model",
        )
