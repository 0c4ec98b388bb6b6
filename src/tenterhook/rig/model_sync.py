"""Follow changes of the model: parts that were added, replaced, removed, tied, untied, frozen or unfrozen."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from torch import nn

from tenterhook import torch_internals as private
from tenterhook.errors import ResolveError
from tenterhook.plan import Kind
from tenterhook.resolve.dormancy import ELSEWHERE, GONE, PASSING, why_dormant
from tenterhook.resolve.fingerprint import Change, Fingerprint
from tenterhook.resolve.model_view import ModelView, held_by
from tenterhook.resolve.resolution import find_targets
from tenterhook.resolve.targets import Target
from tenterhook.rig.installer import Installer
from tenterhook.rig.points.parameter_grads import ParameterRegistration
from tenterhook.rig.runtime.attached_hook import AttachedHook, Site
from tenterhook.rig.runtime.environment import TrainedModel

ABANDONED = "the gradients were cleared without a step"


class Activity(NamedTuple):
    """Counts that change when a pass runs."""

    #: the number of the next graph node, or 0 if this torch does not tell it
    nodes: int
    firings: int
    #: the identity and version of a gradient that no optimizer clears
    gradient: tuple[int, int] | None


class ModelSync:
    """An object that detects changes to the model where signals occur, and updates the registrations."""

    def __init__(
        self,
        installer: Installer,
        *,
        fsdp: bool,
        on_resolved: Callable[[], None],
        on_missed: Callable[[list[Site]], None],
        on_renamed: Callable[[list[Site]], None],
    ) -> None:
        self._installer = installer
        #: called with sites on parts of the model that may have run before the change was noticed
        self._on_missed = on_missed
        #: called with sites where the hook acted in this step on a part that now has another name
        self._on_renamed = on_renamed
        #: called after all targets were looked up again
        self._on_resolved = on_resolved
        #: True if FSDP2 replaces the parameters for each forward pass
        self._fsdp = fsdp
        #: number of times that all targets were looked up again
        self.resolved = 0
        #: the step in which the root last began a forward pass
        self._root_called = -1
        #: False if the last forward pass was not a call of the root
        self.root_is_called = False
        #: True if the next call of a module below the root will be noticed, so that no pass can have been missed
        self.watches_calls = False
        #: a parameter whose gradient `Optimizer.zero_grad` does not clear, so that it shows backward passes
        self._uncleared = self._find_uncleared()
        #: what had happened when it was last known that no pass was missed
        self._accounted = self._activity()
        self._fingerprint: Fingerprint | None = self._take()
        #: True if registrations were bound to other tensors in the last look at the model
        self._rebinds = False
        installer.environment.gradients.on_cleared = self._drop_abandoned
        #: freed optimizers for which a warning has already been issued
        self._freed: set[str] = set()

    @property
    def _model(self) -> TrainedModel:
        return self._installer.environment.model

    def _take(self) -> Fingerprint | None:
        model = self._model.root()
        return Fingerprint(model, tensors=not self._fsdp) if model is not None else None

    # -- where signals occur -----------------------------------------------------------------------------------------

    def begin_forward(self) -> None:
        """Follow changes of the model, and begin the next forward pass of the root."""
        installer, environment = self._installer, self._installer.environment
        environment.gradients.begin_forward()
        self._report_freed_optimizers()
        self._follow_for_hooks()
        self._root_called = environment.clock.step
        self.root_is_called = True
        installer.settle_retired()
        environment.clock.passes.begin(
            environment.clock.step, installer.schedule.modifiers, training=environment.model.is_training()
        )

    def begin_step(self, *, optimizer_changed: bool) -> None:
        """Follow changes of the model before an optimizer's step."""
        self.root_is_called = self._root_called == self._installer.environment.clock.step
        self._follow_for_hooks(quickly=self.root_is_called and not self.watches_calls)
        if optimizer_changed:
            self._update_dormant_sites()

    def look(self) -> None:
        """Follow changes now, because a pass may have run after the model changed, but not while a pass is running."""
        if not self._installer.forward_is_running and private.graph_task_id() == -1:
            self.follow()

    def _follow_for_hooks(self, *, quickly: bool = False) -> None:
        """Follow changes, unless no hook is due. They are followed when a hook is due again."""
        if self._installer.schedule.active:
            self.follow(quickly=quickly)
        else:
            self.account()

    def follow(self, *, quickly: bool = False) -> None:
        """Update the registrations if the model has changed since the last call.

        Args:
            quickly: Do not look for parameters that were replaced or swapped without an assignment.
        """
        if self._fingerprint is None:
            return
        change = self._fingerprint.compare_quickly() if quickly else self._fingerprint.compare()
        may_have_run = not self.watches_calls and self.graph_was_built()
        if change is Change.STRUCTURE:
            self.resolve_again()
        elif change is not Change.NOTHING:
            self._update_dormant_sites()
        if change >= Change.SWAPPED or self._rebinds or self._fsdp:
            swapped = [one for one in self._installer.schedule.parameters if self._was_swapped(one)]
            self._rebinds = bool(swapped)  # the next call removes the hooks of the tensors that were there before
            if may_have_run and not self._fsdp:  # FSDP2 itself swaps the parameters in each pass
                sites = [site for registration in swapped for site in registration.serving.active]
                self._on_missed([site for site in sites if self._has_gradient(site)])
        if change is Change.STRUCTURE:
            self._installer.registrations.remove_stale()
        self.account()

    # -- what has changed --------------------------------------------------------------------------------------------

    def _report_freed_optimizers(self) -> None:
        for name in self._model.freed_optimizers():
            if name not in self._freed:
                self._freed.add(name)
                warnings.warn(
                    f"tenterhook: the {name!r} given to attach no longer exists, so hooks cannot observe its steps\n"
                    "  remedy: attach again with the optimizer that now trains the model",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def _drop_abandoned(self) -> None:
        """Drop statistics for gradients that were cleared without a step, for example because GradScaler skipped it."""
        for hook in self._installer.schedule.active:
            partials = hook.partials
            if partials is not None and hook.hook.point.side == "backward" and 1 in partials.fired:
                for site in hook.sites:
                    if partials.fired[site.slot]:
                        site.skip(ABANDONED)
                partials.clear()

    def _was_swapped(self, registration: ParameterRegistration) -> bool:
        """Update a registration if its parameter was replaced or swapped. Return True if it was."""
        parameter = registration.target.parameter()
        # functional_call replaces the parameters with other tensors for one forward pass.
        return isinstance(parameter, nn.Parameter) and parameter.is_leaf and registration.rebind(parameter)

    def resolve_again(self) -> None:
        """Find every target again by its name, because the structure of the model has changed."""
        model, installer = self._model.root(), self._installer
        if model is None:
            return
        self.resolved += 1
        view = ModelView(model, self._model.optimizers(), ranks=installer.environment.group.size)
        self._fsdp = view.fsdp2
        self._fingerprint = self._take()
        names = installer.registrations.objects  # a weight that was tied outlives the module that it was found in
        installer.registrations.set_targets(view.targets)
        new: list[Site] = []
        renamed: list[Site] = []
        for hook in installer.hooks.values():
            if hook.on_taps:
                continue
            try:
                targets = {t.name: t for t in find_targets(hook.hook, view, strict=False)}
            except ResolveError:
                targets = {}
            acted = self._acted(hook, names)
            before = {_object_of(site) for site in hook.sites if site.dormant != GONE}
            changed = [site for site in hook.sites if self._move(site, targets.pop(site.name, None))]
            for target in targets.values():
                site = hook.add_site(target)
                installer.registrations.add_site(site)
                changed.append(site)
            if hook.has_registrations and hook.active:
                new += [site for site in changed if _object_of(site) not in before]
            renamed += self._acted_by_old_name(hook, acted)
            installer.environment.outdated.add(hook)
        missed = self._missed(new)
        self._update_dormant_sites()
        installer.registrations.leave_renamed()
        installer.registrations.sort({hook: i for i, hook in enumerate(installer.hooks.values())})
        installer.apply_schedule()
        self._on_resolved()
        self._on_missed(missed)
        self._on_renamed(renamed)

    def _move(self, site: Site, target: Target | None) -> bool:
        """Bind a site to the target that now has its name. Return True if it was bound to another one, or to none."""
        if target is None:
            if site.dormant != ELSEWHERE:
                site.sleep(GONE)
            return False
        returns = site.dormant == GONE
        if returns:
            site.wake()
        moved = target.owner() is not site.target.owner() or target.key != site.target.key
        site.target = target
        self._installer.registrations.move(site, target, moved=moved)
        if moved:
            site.rebound += 1
        return moved or returns

    def _update_dormant_sites(self) -> None:
        """Update which sites are dormant because their parameters are frozen or not in an optimizer."""
        held = held_by(self._model.optimizers())
        self._uncleared = self._find_uncleared()
        for hook in self._installer.hooks.values():
            for site in hook.sites:
                if site.blocked:
                    continue
                why = why_dormant(hook.hook, site.target, held)
                if why == site.dormant or (why is not None and why not in PASSING and site.dormant is not None):
                    continue
                if why is None:
                    site.wake()
                    site.installed = hook.active
                else:
                    site.sleep(why)

    def _find_uncleared(self) -> Target | None:
        """Return the last trained parameter that no optimizer holds."""
        held = held_by(self._model.optimizers())
        for target in reversed(self._installer.registrations.targets.parameters.values()):
            parameter = target.parameter()
            if parameter is not None and parameter.requires_grad and id(parameter) not in held:
                return target
        return None

    # -- passes that hooks missed ------------------------------------------------------------------------------------

    def account(self) -> None:
        """Take note that all passes and firings so far are accounted for."""
        self._accounted = self._activity()

    def _activity(self) -> Activity:
        state = None
        parameter = None if self._uncleared is None else self._uncleared.parameter()
        # functional_call may have replaced the parameter, so it need not be a leaf
        if parameter is not None and parameter.is_leaf and parameter.grad is not None:
            state = id(parameter.grad), private.read_version(parameter.grad)
        return Activity(private.sequence_number(), self._installer.environment.clock.firings, state)

    def graph_was_built(self) -> bool:
        """Return True if a graph was built since `account` was called."""
        number = private.sequence_number()
        return number != self._accounted.nodes or not number

    def _missed(self, new: Sequence[Site]) -> list[Site]:
        """Return the new sites that a pass may have reached before they were noticed."""
        if self.watches_calls:
            return []
        built, first = self.graph_was_built(), self._called_first(new)
        return [
            site
            for site in new
            if (site.attached.hook.point.side == "forward" and (first is None or site.name in first))
            or (built and self._has_gradient(site))
        ]

    def _called_first(self, new: Sequence[Site]) -> set[str] | None:
        """Return the modules that a forward pass may have called without a hook to show it, or None for all of them.

        A hook that fired shows that a pass ran. If none fired, a pass that failed may have called the modules that come
        before the first one with a hook.
        """
        hooks = [hook for hook in self._installer.hooks.values() if hook.hook.point.side == "forward"]
        sites = [site for hook in hooks for site in hook.sites if site.dormant is None]
        if any(site.order >= self._accounted.firings for site in sites):
            return None
        if not self.graph_was_built() or self._root_called == self._installer.environment.clock.step:
            return set()
        known = {site.name for site in sites if not _has_parts(site)} - {site.name for site in new}
        return set(takewhile(lambda name: name not in known, self._installer.registrations.targets.modules))

    def _has_gradient(self, site: Site) -> bool:
        """Return True if a gradient shows that a backward pass has reached a site.

        If the parameters of a module are frozen, those of other modules show it, because the module's gradient
        reaches them. If they were cleared, a gradient that no optimizer clears shows it.
        """
        if site.target.kind == "parameter":
            parameter = site.target.parameter()
            return parameter is not None and parameter.grad is not None
        owner, model = site.target.owner(), self._model.root()
        if not isinstance(owner, nn.Module) or model is None:
            return False
        own = [one for one in owner.parameters() if one.requires_grad]
        if any(one.grad is not None for one in own or model.parameters()):
            return True
        return self._activity().gradient not in (None, self._accounted.gradient)

    def _acted(self, hook: AttachedHook, names: Mapping[tuple[Kind, str], int]) -> dict[Site, int]:
        """Return the sites where a hook has fired in this step, and the objects that then had their names."""
        step = self._installer.environment.clock.step
        return {site: names.get((site.target.kind, site.name), 0) for site in hook.sites if site.last == step}

    def _acted_by_old_name(self, hook: AttachedHook, acted: dict[Site, int]) -> list[Site]:
        """Return the sites where a hook has fired for an object that is still in the model, but has another name.

        An observer has recorded the old name. A modifier does the same by all names of the objects that it selects.
        """
        known = set(self._installer.registrations.objects.values())
        if hook.definition.modifies:
            known -= {_object_of(site) for site in hook.sites if site.dormant != GONE}
            acted = {site: was for site, was in acted.items() if site.order >= self._accounted.firings}
        moved = {site for site, was in acted.items() if was != _object_of(site) or site.dormant == GONE}
        return [site for site in moved if acted[site] in known]


def _object_of(site: Site) -> int:
    """Return the identity of a site's module or parameter."""
    return id(site.target.parameter() if site.target.kind == "parameter" else site.target.owner())


def _has_parts(site: Site) -> bool:
    """Return True if a site's module has modules, which a program may call without a call of this module."""
    owner = site.target.owner()
    return isinstance(owner, nn.Module) and bool(private.child_modules(owner))
