"""Notice every call of a model, through its root or not, and follow the model's changes before the call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn
from torch.compiler import is_dynamo_compiling
from torch.utils.hooks import RemovableHandle

from tenterhook import torch_internals as private
from tenterhook.audit import Imbalance, Imbalances
from tenterhook.resolve.dormancy import is_container
from tenterhook.rig.installer import Installer
from tenterhook.rig.model_sync import ModelSync
from tenterhook.rig.points.taps import Taps
from tenterhook.rig.root_hooks import RootEvents, RootHooks
from tenterhook.rig.rootless_calls import RootlessCalls
from tenterhook.rig.runtime.attached_hook import AttachedHook, Site
from tenterhook.rig.runtime.entrances import entrances
from tenterhook.rig.runtime.registration import Dispatch
from tenterhook.torch_internals import compiler as dynamo


class ModelCalls:
    """An object that notices the calls of a model, and updates the rig's registrations before each of them.

    Args:
        owner: The rig. The hooks on the root keep it alive.
        model: The model.
        installer: The installer of the rig's hooks.
        events: The functions to call when passes through the root begin and end.
        apply_schedule: Function that installs the hooks that are due and suspends the others.
        found: Receives parts of the model that ran before the rig noticed them.
        fsdp: True if FSDP2 shards the model.
    """

    def __init__(
        self,
        owner: object,
        model: nn.Module,
        installer: Installer,
        events: RootEvents,
        apply_schedule: Callable[[], None],
        found: Imbalances,
        *,
        fsdp: bool,
    ) -> None:
        environment = installer.environment
        self._installer = installer
        self._found = found
        self._has_optimizers = environment.model.has_optimizers
        self.taps = Taps(model, environment.clock)
        self.sync = ModelSync(
            installer,
            fsdp=fsdp,
            on_resolved=self._targets_were_found,
            on_missed=self._report_missed,
            on_renamed=self._report_renamed,
        )
        registrations = installer.registrations
        self.root = RootHooks(owner, model, environment.clock.passes, registrations.graphs, events)
        self._rootless = RootlessCalls(
            model,
            self.root,
            self.sync,
            registrations.rig,
            ends_steps=not self._has_optimizers,
            on_unwatched=self._report_missed_modules,
        )
        self._apply_schedule = apply_schedule
        # A root that is a container of pipeline stages is never called itself.
        parts = entrances(model) if is_container(model) else ()
        self._parts = [private.register_first(one, Dispatch(self._begin_part)) for one in parts]
        if not self._has_optimizers:
            environment.clock.watch(self._rootless.arm)

    @property
    def handles(self) -> list[RemovableHandle]:
        """Return the handles of the hooks that watch calls, except the one at the beginning of the root's pass."""
        end = self.root.end_handle
        return [*([end] if end is not None else []), *self._parts, *self._rootless.handles]

    def listen(self) -> None:
        """Begin to notice assignments to parts of the model."""
        self._rootless.listen()

    def set_hooks(self, hooks: Sequence[AttachedHook]) -> None:
        """Watch what the active hooks need: taps, the end of the root's forward pass, and passes without the root."""
        installer = self._installer
        self.taps.set_hooks([*hooks, *installer.retired])
        changes = installer.schedule.modifiers or installer.has_pending_changes
        needs_end = any(hook.on_taps or (hook.active and hook.hook.point.side == "forward") for hook in hooks)
        self._rootless.watch_ends(any(hook.active and hook.has_registrations for hook in hooks))
        self.root.watch_end(bool(changes) or needs_end or not self._has_optimizers)

    def begin_forward(self) -> bool:
        """Begin a forward pass of the root. Return True if parts of the model were replaced."""
        registrations, passes = self._installer.registrations, self._installer.environment.clock.passes
        if not registrations.graphs.is_watching:
            registrations.graphs.watch(registrations)
        self._pause_for_shapes()
        passes.under_way, passes.replayed = False, None
        if self._installer.has_pending_changes:
            self._apply_schedule()
        before = self.sync.resolved
        self.sync.begin_forward()
        self._rootless.disarm()
        passes.under_way = self.root.end_handle is not None
        return self.sync.resolved != before

    def end_step(self) -> None:
        """Watch all modules below the root in the next step if the root was not called in this one."""
        if self.sync.root_is_called:
            self._rootless.waits = True
        else:
            self._rootless.arm()
        self.sync.root_is_called = False
        self.sync.account()

    def close(self) -> None:
        """Stop noticing calls."""
        self.root.silent = True
        self._rootless.close()
        for handle in self._parts:
            handle.remove()

    def _targets_were_found(self) -> None:
        """Update what depends on the structure of the model, because it has changed."""
        if self.sync.graph_was_built():
            self._rootless.report_unwatched()
        self.taps.forget_paths()
        self._rootless.find_ends()

    @dynamo.skip_dynamo
    def _begin_part(self, module: nn.Module, args: object) -> None:
        if not is_dynamo_compiling():
            self._pause_for_shapes()

    def _pause_for_shapes(self) -> None:
        """Pause while a pipeline stage runs only to infer shapes."""
        installer = self._installer
        if (installer.off or private.infers_shapes()) != installer.paused:
            installer.paused = not installer.paused
            self._apply_schedule()

    def _report_missed_modules(self, modules: Sequence[nn.Module]) -> None:
        """Report sites on modules that may have been called before the rig noticed them."""
        inside = {part for module in modules for part in module.modules()}
        hooks = [hook for hook in self._installer.hooks.values() if hook.active and hook.has_registrations]
        sites = [site for hook in hooks for site in hook.sites if site.target.kind == "module"]
        self._report_missed([site for site in sites if site.target.owner() in inside])

    def _report_missed(self, sites: Sequence[Site]) -> None:
        """Report sites on parts of the model that may have run before the rig noticed them."""
        self._report(
            sites,
            "the model changed before a pass that did not call it, so this pass may have run without the hook",
            "call rig.follow() after the change, or call the model itself",
        )

    def _report_renamed(self, sites: Sequence[Site]) -> None:
        """Report sites where the hook acted in this step on a part that now has another name."""
        self._report(
            sites,
            "the hook acted in this step on a part of the model that now has another name",
            "change the model between steps, and call rig.follow() after the change if the program does not call the "
            "model itself",
        )

    def _report(self, sites: Sequence[Site], cause: str, remedy: str) -> None:
        if sites:
            self._found.add([Imbalance("TH703", cause, remedy, one.hook, one.point, target=one.name) for one in sites])
