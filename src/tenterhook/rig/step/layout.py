"""Decide how targets are distributed over the ranks, in the first step and when the program distributes the model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import Any

from torch import Tensor

from tenterhook import ranks
from tenterhook.errors import RefusedError, TenterhookError
from tenterhook.resolve.agreement import lay_out, merge_parts
from tenterhook.resolve.dormancy import ELSEWHERE
from tenterhook.resolve.model_view import ModelView
from tenterhook.resolve.refusals import check_sharded
from tenterhook.resolve.replicas import find_parts, kept_equal_by_ddp
from tenterhook.resolve.resolution import Resolution
from tenterhook.resolve.sharding import GLOBAL_POINTS
from tenterhook.resolve.targets import is_sharded, named_parameters
from tenterhook.rig.installer import Installer
from tenterhook.rig.runtime.attached_hook import AttachedHook


class LayoutStatus(Enum):
    """The state of the ranks' decision about how the targets are distributed."""

    DECIDED = auto()
    #: the ranks have not compared the tensors that may be replicas
    UNCHECKED = auto()
    #: this rank has another layout than the one that the ranks decided on
    CHANGED = auto()


class Layout:
    """How the targets of a rig are distributed: whole, replicated, sharded, or in parts that each rank has.

    `attach` decides it as far as types tell. `fully_shard` and `parallelize_module` change it. Whether plain tensors
    with the same name are replicas is decided in the first step, because a program may copy them after `attach`.
    """

    def __init__(self, installer: Installer) -> None:
        self._installer = installer
        #: how often all targets had been looked up when the layout was last read
        self._looked = 0
        self._decided = self._read()
        self.status = LayoutStatus.UNCHECKED

    def forget(self) -> None:
        """Check again in the next step which tensors are replicas, because the plan has changed."""
        if self.status is LayoutStatus.DECIDED:
            self.status = LayoutStatus.UNCHECKED

    def give_up(self) -> None:
        """Keep the layout that the types tell, because the ranks could not compare their tensors."""
        self.status = LayoutStatus.DECIDED

    def follow(self, resolved: int) -> bool:
        """Return True if the ranks have to decide the layout in this step.

        Args:
            resolved: How often all targets have been looked up again.
        """
        if self._looked != resolved:
            self._looked = resolved
            if self._read() != self._decided:
                self.status = LayoutStatus.CHANGED
        if self.status is LayoutStatus.UNCHECKED:
            return any(_is_global(hook) for hook in self._installer.schedule.active)
        return self.status is LayoutStatus.CHANGED

    def settle(self, *, changed: bool) -> None:
        """Decide the layout on all ranks together. If one rank refuses a hook, all ranks raise that error.

        Args:
            changed: True if the layout of at least one rank has changed.
        """
        if changed:
            self._lay_out_again()
        group, hooks = self._installer.environment.group, self._installer.hooks.values()
        names = dict.fromkeys(site.name for hook in hooks if _is_global(hook) for site in hook.sites)
        parts = find_parts(group, names, self._assumed_replicas())
        for hook in hooks:
            hook.resolved = merge_parts(hook.resolved, parts)
        self.status = LayoutStatus.DECIDED
        self._installer.update_schedule()

    def _lay_out_again(self) -> None:
        environment = self._installer.environment
        model, group = environment.model.root(), environment.group
        if model is None:
            return
        view = ModelView(model, environment.model.optimizers(), ranks=group.size)
        hooks = [hook for hook in self._installer.hooks.values() if not hook.on_taps]
        ranks.all_or_none(group, partial(_check, hooks, view))
        here = tuple(
            replace(hook.resolved, targets=tuple(s.target for s in hook.sites if s.dormant != ELSEWHERE), owners={})
            for hook in hooks
        )
        for hook, resolved in zip(hooks, lay_out(group, Resolution(here, view)), strict=True):
            hook.resolved = replace(
                hook.resolved, merges=resolved.merges, has_replicas=resolved.has_replicas, owners=resolved.owners
            )
            hook.make_batch()
        self._decided = self._read()

    def _assumed_replicas(self) -> dict[str, Tensor]:
        """Return the parameters of which the type does not tell how they are distributed over all ranks."""
        model = self._installer.environment.model.root()
        kept = kept_equal_by_ddp(model) if model is not None else set()
        size = self._installer.environment.group.size
        found = {}
        for hook in filter(_is_global, self._installer.hooks.values()):
            for target in hook.targets:
                parameter = target.parameter()
                if parameter is None or id(parameter) in kept:
                    continue
                sharded: Any = parameter
                if not is_sharded(parameter) or sharded.device_mesh.size() < size:
                    found[target.name] = parameter
        return found

    def _read(self) -> dict[str, object]:
        """Return the mesh and the placements of each sharded parameter."""
        model = self._installer.environment.model.root()
        named: list[tuple[str, Any]] = [] if model is None else list(named_parameters(model))
        return {name: (one.device_mesh, one.placements) for name, one in named if is_sharded(one)}


def _is_global(hook: AttachedHook) -> bool:
    return hook.hook.at in GLOBAL_POINTS


def _check(hooks: Iterable[AttachedHook], view: ModelView) -> None:
    for hook in hooks:
        try:
            _check_hook(hook, view)
        except TenterhookError as error:
            raise error.located(hook=hook.hook.id, point=hook.hook.at) from error.__cause__


def _check_hook(hook: AttachedHook, view: ModelView) -> None:
    """Refuse a hook that the new layout does not support."""
    side, at_tensors = hook.hook.point.side, "parameter" in hook.hook.point.on
    if side == "backward" and at_tensors and any(is_sharded(one.parameter()) for one in hook.targets):
        why = "the hook is on the tensors that the parameters were before"
    elif side in ("forward", "backward") and not at_tensors and view.tensor_parallel:
        why = "the hook is called before the modules distribute their inputs and outputs"
    else:
        check_sharded(hook.hook, hook.definition, tuple(hook.targets), view)
        return
    raise RefusedError(
        f"the model was distributed after this hook was attached, so {why}",
        remedy="attach after fully_shard or parallelize_module",
    )
