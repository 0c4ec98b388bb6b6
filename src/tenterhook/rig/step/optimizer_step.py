"""Run the hooks at `grad_final`, `update`, `step_pre` and `step_post` before and after an optimizer's step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from tenterhook import torch_internals as private
from tenterhook.actions import unmeasurable
from tenterhook.resolve.sharding import is_counted_here, is_partial, local, reduce_partial
from tenterhook.resolve.targets import is_sharded
from tenterhook.rig.installer import Installer
from tenterhook.rig.model_sync import ModelSync
from tenterhook.rig.points.calling import Fire, apply, make_call, make_fire, out_of_phase
from tenterhook.rig.runtime.attached_hook import AttachedHook, Site
from tenterhook.rig.step.agreement import StepAgreement
from tenterhook.rig.step.modify_together import change_together, fits_together, measure_together
from tenterhook.rig.step.outer_step import OuterStep
from tenterhook.rig.step.sharded_modifiers import MergeBatch, reduce_rows
from tenterhook.rig.step.step_targets import Given, Reached, StepTargets, skip_without_gradient
from tenterhook.torch_internals import compiler as dynamo

#: reason for an `update` that cannot be computed, because the step replaced the data of the parameter
RESHAPED = "the step changed the shape or the device of the parameter"


class OptimizerStep:
    """An object that runs one rig's hooks before and after each step of one optimizer."""

    def __init__(
        self,
        optimizer: Optimizer,
        installer: Installer,
        sync: ModelSync,
        agreement: StepAgreement,
        *,
        end: Callable[[], None] | None,
    ) -> None:
        self._targets = StepTargets(optimizer, sync)
        self._installer = installer
        self._agreement = agreement
        self._replicas = agreement.new_check()
        self._sync = sync
        #: function to call after the step if this optimizer is the clock; None otherwise
        self._end = end
        self._outer = OuterStep()
        #: True if the running step is not counted
        self._ignored = False
        self._hooks: list[AttachedHook] = []
        self._fires: dict[Site, Fire] = {}
        #: for each site at `update`, the values that this rank's part of its parameter had before the step
        self._before: list[tuple[Site, Tensor]] = []
        self._handles = (
            optimizer.register_step_pre_hook(self._pre),
            optimizer.register_step_post_hook(self._post),
        )

    @property
    def running(self) -> bool:
        """Return True if the optimizer's step is on the call stack, which is no longer the case after an error."""
        return self._outer.is_running(sys._getframe(1))

    def remove(self) -> None:
        self._hooks, self._end = [], None
        self._targets.clear()
        for handle in self._handles:
            handle.remove()

    def set_hooks(self, hooks: Iterable[AttachedHook]) -> None:
        """Set the hooks to run. Only hooks at step points are used, in plan order."""
        hooks = [hook for hook in hooks if hook.hook.point.side == "step"]
        if hooks != self._hooks:
            self._hooks, self._fires = hooks, {}
            self._targets.clear()

    def silence(self) -> None:
        """Disable the hooks while PyTorch iterates over them, because they cannot be removed during iteration."""
        self._hooks, self._end = [], None
        self._before.clear()

    @dynamo.breaks_graph
    def _pre(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        if not self._outer.begin(sys._getframe(1)):  # the frame of `optimizer.step()`
            return None
        self._before.clear()  # a step that failed may have left data
        self._ignored = _is_ignored(optimizer, kwargs)
        if self._ignored:
            return None
        if self._installer.schedule.active:
            self._targets.begin_step()
            if not self._installer.environment.group.is_alone:
                self._agreement.follow_layout(self._sync.resolved)
        if not any(hook.active for hook in self._hooks):
            self._agree()
            return None
        _unscale(optimizer)
        self._call("step_pre", optimizer)
        closure = kwargs.get("closure") or next((a for a in args[1:2] if callable(a)), None)
        if closure is None:
            self._finals()
            self._agree()
        self._copy_parameters()
        if closure is None:
            return None
        wrapped = partial(self._evaluated, closure)
        if kwargs.get("closure") is closure:
            return args, {**kwargs, "closure": wrapped}
        return (args[0], wrapped, *args[2:]), kwargs

    def _evaluated(self, closure: Callable[[], Any]) -> Any:
        """Call the closure, then run the gradient hooks. An optimizer may call this method more than once in a step."""
        loss = closure()
        self._finals()
        self._agree()
        return loss

    def _agree(self, *points: str) -> None:
        """Raise an error on every rank if an error occurred on any rank."""
        if self._installer.environment.errors.shared:
            self._agreement.agree(*points)

    @dynamo.breaks_graph
    def _post(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not self._outer.ends_here():
            return
        try:
            if not self._ignored:
                self._finish(optimizer)
        finally:
            self._outer.clear()

    def _finish(self, optimizer: Optimizer) -> None:
        with torch.no_grad():
            self._updates()
        self._before.clear()
        self._call("step_post", optimizer)
        self._agree("update", "step_post")
        self._installer.environment.gradients.used_by(optimizer)
        if self._end is not None:
            self._end()

    def _updates(self) -> None:
        moved: dict[AttachedHook, _Moved] = {}
        for site, old in self._before:
            parameter = site.target.parameter()
            if parameter is None:
                continue
            part = local(parameter)
            if part.shape != old.shape or part.device != old.device:
                site.skip(RESHAPED)
                continue
            update = part - old
            if site.attached.batch is not None or site.attached.resolved.merges:
                found = moved.setdefault(site.attached, _Moved([], [], []))
                found.sites.append(site)
                found.parameters.append(parameter)
                found.updates.append(update)
            else:
                self._fire(site)(update)
        for hook, found in moved.items():
            if hook.resolved.merges:
                self._parts(hook, found.sites, found.parameters, found.updates)
            else:
                self._together(hook, found.sites, found.updates)

    def _fire(self, site: Site) -> Fire:
        fire = self._fires.get(site)
        if fire is None:
            tensors = site.target.kind == "parameter"
            fire = self._fires[site] = make_fire(site, captured=True) if tensors else make_call(site)
        return fire

    def _call(self, point: str, optimizer: Optimizer) -> None:
        for hook in self._hooks:
            if hook.active and hook.hook.at == point:
                for site in hook.sites:
                    if site.target.owner() is optimizer:
                        self._fire(site)(optimizer)

    @torch.no_grad()
    def _finals(self) -> None:
        hooks = [hook for hook in self._hooks if hook.active and hook.hook.at == "grad_final"]
        if not hooks:
            return
        found = [(hook, self._targets.reached_by(hook)) for hook in hooks]
        compared = [one for one in found if one[0].definition.across_ranks == "equal"]
        found = [one for one in found if one[0].definition.across_ranks != "equal"]
        partial_sums = any(_has_partial_sums(reached) for _, reached in compared)
        for hook, reached in compared if not partial_sums else ():
            self._replicas.measure(hook, reached)  # before the first exchange of the step, which carries the digests
        if any(hook.resolved.merges for hook in hooks):
            self._agreement.begin()
        _sum({id(p): p for _, reached in [*compared, *found] if reached.sharded for p in reached.parameters}.values())
        for hook, reached in compared if partial_sums else ():
            self._replicas.measure(hook, reached)
        batch = MergeBatch(self._installer.environment.group)
        for hook, reached in found:
            batch.finish_before(hook)
            if hook.resolved.merges and hook.definition.modifies:
                batch.add(hook, reached)
            elif hook.resolved.over_hook:
                self._over_hook(hook, reached)
            else:
                self._each(hook, reached)
        batch.finish()

    def _together(self, hook: AttachedHook, sites: Sequence[Site], given: Sequence[Tensor | None]) -> None:
        """Measure all sites of an observer in one pass."""
        if not hook.in_phase():
            for site in sites:
                site.skip(out_of_phase(hook))
            return
        tensors: list[Tensor | None] = [None] * len(hook.sites)
        for site, tensor in zip(sites, given, strict=True):
            if tensor is None:
                skip_without_gradient(site)
            elif tensor.layout is not torch.strided:
                hook.fail(site, unmeasurable(tensor))
            else:
                tensors[site.slot] = tensor
        measured = [site for site in sites if tensors[site.slot] is not None]
        if hook.partials is None or not measured:
            return
        try:
            batch = hook.batch
            if batch is None or not batch.fits(tensors):
                batch = hook.make_batch(tensors)
            columns = batch(tensors, self._values(hook, measured)) if batch is not None else None
        except Exception:  # measure the sites one by one below, so that the error names the site
            columns, hook.batch = None, None
        if columns is None:
            for site in measured:
                self._fire(site)(tensors[site.slot])
            return
        try:
            hook.partials.add_together([site.slot for site in measured], columns)
        except Exception as error:
            hook.fail(measured[0], error)
            return
        clock = hook.clock
        for site in measured:
            site.count(clock)

    @staticmethod
    def _values(hook: AttachedHook, measured: list[Site]) -> list[Tensor | None]:
        """Return the parameters of the measured sites by slot, or an empty list if the action does not need them."""
        if not hook.definition.needs_value:
            return []
        values: list[Tensor | None] = [None] * len(hook.sites)
        for site in measured:
            parameter = site.target.parameter()
            values[site.slot] = None if parameter is None else local(parameter)
        return values

    def _each(self, hook: AttachedHook, reached: Reached) -> None:
        if hook.resolved.merges and hook.partials is not None:
            grads = [p.grad for p in reached.parameters]
            self._parts(hook, reached.sites, grads, list(map(_part, grads)))
        elif hook.batch is not None:
            self._together(hook, reached.sites, [_part(p.grad) for p in reached.parameters])
        else:
            given = Given.of(hook, reached)
            if fits_together(hook, given.parts):
                change_together(hook, given.sites, given.parts, measure_together(hook, given.parts))
                return
            for site, parameter, part in given.each():
                _replace(parameter, self._fire(site)(part))

    def _parts(
        self,
        hook: AttachedHook,
        sites: Sequence[Site],
        whole: Sequence[Tensor | None],
        given: Sequence[Tensor | None],
    ) -> None:
        """Measure this rank's parts of tensors that are spread across ranks. Results are merged when the step ends.

        `whole` tells how each tensor is spread, and `given` has this rank's part of it.
        """
        mine: list[Site] = []
        parts: list[Tensor | None] = []
        for site, tensor, part in zip(sites, whole, given, strict=True):
            counted = tensor is None or is_counted_here(tensor, hook.resolved.counted_rank(site.name))
            if counted and (part is None or part.numel()):
                mine.append(site)
                parts.append(part)
            elif hook.in_phase():
                site.count(hook.clock)  # another rank measures this tensor
            else:
                site.skip(out_of_phase(hook))
        if hook.batch is not None:
            self._together(hook, mine, parts)
            return
        for site, part in zip(mine, parts, strict=True):
            if part is None:
                skip_without_gradient(site)
            else:
                self._fire(site)(part)

    def _over_hook(self, hook: AttachedHook, reached: Reached) -> None:
        """Measure all of the hook's targets together, then apply the result to each target."""
        given = Given.of(hook, reached)
        if not given.sites:
            return
        together = fits_together(hook, given.parts)
        columns = measure_together(hook, given.parts) if together else self._measure_each(hook, given)
        if columns is None:
            return
        merged = {n: reduce_rows(column, hook.definition.partials[n].merge)[0] for n, column in columns.items()}
        if together:
            change_together(hook, given.sites, given.parts, merged)
            return
        for site, parameter, part in given.each():
            _replace(parameter, apply(site, part, {n: m.to(part.device) for n, m in merged.items()}))

    @staticmethod
    def _measure_each(hook: AttachedHook, given: Given) -> dict[str, Tensor] | None:
        """Return the partial results of each gradient in one row, or None if one of them cannot be measured."""
        measure = hook.definition.measure
        assert measure is not None
        parts = []
        for site, _, part in given.each():
            try:
                parts.append(measure(part))
            except Exception as error:
                hook.fail(site, error)
                return None
        first = next(iter(parts[0].values())).device
        return {n: torch.stack([p[n].to(first) for p in parts]) for n in hook.definition.partials}

    @torch.no_grad()
    def _copy_parameters(self) -> None:
        hooks = [hook for hook in self._hooks if hook.active and hook.hook.at == "update"]
        for hook in hooks:
            reached = self._targets.reached_by(hook)
            for site, parameter in zip(reached.sites, reached.parameters, strict=True):
                if parameter.requires_grad or parameter.grad is not None:
                    self._before.append((site, local(parameter).clone()))
                else:
                    skip_without_gradient(site)


class _Moved(NamedTuple):
    """The sites of a hook at `update`, with their parameters and how far this rank's parts of these moved."""

    sites: list[Site]
    parameters: list[Tensor]
    updates: list[Tensor]


def _part(grad: Tensor | None) -> Tensor | None:
    return None if grad is None else local(grad)


def _replace(parameter: Tensor, out: Tensor | None) -> None:
    """Replace this rank's part of the gradient with the tensor that a modifier returned."""
    if out is None:
        return
    if parameter.grad is not None and is_sharded(parameter.grad):
        local(parameter.grad).copy_(out)
    else:
        parameter.grad = out


def _has_partial_sums(reached: Reached) -> bool:
    return reached.sharded and any(p.grad is not None and is_partial(p.grad) for p in reached.parameters)


def _sum(parameters: Iterable[Tensor]) -> None:
    """Sum gradients across ranks if each rank has only a partial sum, because the optimizer uses the total."""
    for parameter in parameters:
        if parameter.grad is not None:
            whole = reduce_partial(parameter.grad)
            if whole is not parameter.grad:
                parameter.grad = whole


def _unscale(optimizer: Optimizer) -> None:
    """Divide the gradients by the loss scale before the hooks run.

    A fused optimizer would divide them only after the hooks, in its step.
    """
    scale = private.pending_scale(optimizer)
    if scale is None:
        return
    with torch.no_grad():
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.div_(scale.to(parameter.grad.device))  # bitwise identical to the fused kernels
    private.clear_scale(optimizer)


def _is_ignored(optimizer: Optimizer, kwargs: Any) -> bool:
    """Return True if the optimizer's step must not be counted.

    GradScaler can make a fused optimizer skip a step. Distributed checkpointing (DCP) runs a step that changes no
    parameters, only to create the optimizer's state.
    """
    skipped = private.found_inf(optimizer)
    if skipped is not None and skipped.item():  # this waits for the device, as GradScaler does for other optimizers
        return True
    fake = set(kwargs) == {"closure"} and kwargs["closure"] is None and not optimizer.state
    return fake and private.creates_optimizer_state()
