"""Find parameters and modules that were replaced, untied, frozen or unfrozen since the last forward pass."""

from __future__ import annotations

import warnings

from torch import nn

from tenterhook.errors import ResolveError
from tenterhook.resolve.dormancy import ELSEWHERE, FROZEN, GONE, LASTING, why_dormant
from tenterhook.resolve.model_view import ModelView, optimizer_of
from tenterhook.resolve.resolution import find_targets
from tenterhook.resolve.targets import Target
from tenterhook.rig.installer import Installer
from tenterhook.rig.points.parameter_grads import ParameterRegistration
from tenterhook.rig.runtime.attached_hook import Site
from tenterhook.rig.runtime.environment import TrainedModel

ABANDONED = "the gradients were cleared without a step"


class ModelSync:
    """An object that detects changes to the model and updates the registrations."""

    def __init__(self, installer: Installer) -> None:
        self._installer = installer
        #: number of times that all targets were looked up again
        self.resolved = 0
        #: freed optimizers for which a warning has already been issued
        self._freed: set[str] = set()

    @property
    def _model(self) -> TrainedModel:
        return self._installer.environment.model

    def begin_forward(self) -> None:
        """Update the registrations after changes to the model, and begin the next forward pass."""
        installer, environment = self._installer, self._installer.environment
        environment.gradients.begin_forward()
        self._report_freed_optimizers()
        if installer.schedule.active:
            self._drop_abandoned()
            tied = installer.schedule.tied
            if not installer.registrations.targets.intact() or not all(target.tied for target in tied):
                self.resolve_again()
            for registration in installer.schedule.parameters:
                self._follow(registration)
        self._wake_sites()
        installer.settle_retired()
        environment.clock.passes.begin(
            environment.clock.step, installer.schedule.modifiers, training=environment.model.is_training()
        )

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
        gradients = self._installer.environment.gradients
        started = [
            (hook, hook.partials)
            for hook in self._installer.schedule.active
            if hook.partials and hook.hook.point.side == "backward" and 1 in hook.partials.fired
        ]
        if not started or not gradients.accumulated or self._model.has_gradients():
            return
        gradients.accumulated = False
        for hook, partials in started:
            for site in hook.sites:
                if partials.fired[site.slot]:
                    site.skip(ABANDONED)
            partials.clear()

    def _follow(self, registration: ParameterRegistration) -> None:
        """Update a registration if its parameter was replaced, swapped, frozen or parametrized."""
        parameter = registration.target.parameter()
        if parameter is None:
            self.resolve_again()
        elif not isinstance(parameter, nn.Parameter) or not parameter.is_leaf:
            pass  # functional_call replaces the parameters with other tensors for one forward pass
        elif parameter.requires_grad:
            registration.rebind(parameter)
        else:
            for site in registration.sites:
                site.sleep(FROZEN)
            registration.refresh()

    def resolve_again(self) -> None:
        """Find every target again by its name, because parts of the model were replaced, untied or parametrized."""
        model, installer = self._model.root(), self._installer
        if model is None:
            return
        self.resolved += 1
        view = ModelView(model, self._model.optimizers())
        installer.registrations.targets = view.targets
        for hook in installer.hooks.values():
            if hook.on_taps:
                continue
            try:
                targets = {t.name: t for t in find_targets(hook.hook, view, strict=False)}
            except ResolveError:
                targets = {}
            for site in hook.sites:
                self._move(site, targets.pop(site.name, None))
            for target in targets.values():
                installer.registrations.add_site(hook.add_site(target))
            for site in hook.sites:
                why = why_dormant(hook.hook, site.target, view.optimizer_of) if site.dormant is None else None
                if why:
                    site.sleep(why)
            installer.environment.outdated.add(hook)
        installer.apply_schedule()

    def _move(self, site: Site, target: Target | None) -> None:
        if target is None:
            if site.dormant != ELSEWHERE:
                site.sleep(GONE)
            return
        if site.dormant == GONE:
            site.wake()
        moved = target.owner() is not site.target.owner() or target.key != site.target.key
        site.target = target
        self._installer.registrations.move(site, target, moved=moved)
        if moved:
            site.rebound += 1

    def _wake_sites(self) -> None:
        """Enable the dormant sites whose parameters were unfrozen or added to an optimizer."""
        installer = self._installer
        held: dict[int, str] | None = None
        woken = False
        for hook in installer.hooks.values():
            for site in hook.sites if hook.asleep else ():
                if site.dormant is None or site.dormant in LASTING or site.muted_itself:
                    continue
                parameter = site.target.parameter()
                if parameter is None or not parameter.requires_grad:
                    continue
                held = held if held is not None else optimizer_of(self._model.optimizers())
                why = why_dormant(hook.hook, site.target, held)
                if why is not None:
                    site.dormant = why
                    continue
                woken = True
                site.wake()
                site.installed = hook.active
                installer.registrations.refresh_site(site, installer.environment.clock.passes.replayable())
        if woken:
            installer.update_schedule()
