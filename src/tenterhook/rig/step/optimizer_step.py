"""The optimizer's step: `grad_final`, `update`, `step_pre`, `step_post`, dispatched once over all their sites."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from tenterhook import ranks
from tenterhook import torch_internals as private
from tenterhook.actions import unmeasurable
from tenterhook.resolve.sharding import counts, local, summed
from tenterhook.resolve.targets import is_sharded
from tenterhook.rig.installer import Rigging
from tenterhook.rig.points.calling import Fire, apply, count, make_call, make_fire, out_of_phase
from tenterhook.rig.runtime.attached_hook import LiveHook, Site
from tenterhook.rig.step.sharded_modifiers import NO_GRADIENT, Stage, over
from tenterhook.rig.step.step_targets import Reach, Reached
from tenterhook.torch_internals import compiler as dynamo


class Steps:
    """What happens around one optimizer's step, for one rig."""

    def __init__(self, name: str, optimizer: Optimizer, rigging: Rigging, *, end: Callable[[], None] | None) -> None:
        self.name = name
        self._reach = Reach(name, rigging)
        self._rigging = rigging
        #: called after the step of the optimizer that is the clock
        self._end = end
        #: a subclass that calls super().step() fires twice; the outer step is known by its frame
        self._depth = 0
        self._frame = 0
        #: the step under way does not count
        self._no_step = False
        self._lives: list[LiveHook] = []
        self._fires: dict[Site, Fire] = {}
        self._before: list[tuple[Site, Tensor]] = []
        self._handles = (
            optimizer.register_step_pre_hook(self._pre),
            optimizer.register_step_post_hook(self._post),
        )

    @property
    def running(self) -> bool:
        """Whether the step is on the stack; one that raised is not."""
        return self._under_way(sys._getframe(1))

    def _under_way(self, frame: FrameType | None) -> bool:
        while self._depth and frame is not None:
            if id(frame) == self._frame:
                return True
            frame = frame.f_back
        return False

    def remove(self) -> None:
        self._lives, self._end = [], None
        self._reach.clear()
        for handle in self._handles:
            handle.remove()

    def serve(self, lives: Iterable[LiveHook]) -> None:
        """The hooks at step points, in plan order."""
        lives = [live for live in lives if live.hook.point.side == "step"]
        if lives != self._lives:
            self._lives, self._fires = lives, {}
            self._reach.clear()

    def silence(self) -> None:
        """Do nothing any more, while PyTorch still goes through the hooks."""
        self._lives, self._end = [], None
        self._before.clear()

    def _nested(self) -> bool:
        """Whether this is a step within the one under way; one that raised never reached its end."""
        frame = sys._getframe(2)  # the optimizer's step that called `_pre`
        if self._under_way(frame.f_back):
            return True
        self._depth, self._frame = 0, id(frame)
        self._before.clear()
        return False

    @dynamo.breaks_graph
    def _pre(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        nested = self._nested()
        self._depth += 1
        if nested:
            return None
        self._no_step = _is_no_step(optimizer, kwargs)
        if self._no_step:
            return None
        if not any(live.active for live in self._lives):
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
        """A closure computes the gradients inside the step, perhaps several times."""
        loss = closure()
        self._finals()
        self._agree()
        return loss

    def _agree(self, *points: str) -> None:
        """On several ranks: what failed on one of them stops all; before a weight has moved, but for these points."""
        clock = self._rigging.clock
        lives = [live for live in self._rigging.active if not points or live.hook.at in points]
        if clock.shared and any(live.claim.on_error == "raise" for live in lives):
            error, clock.poison = clock.poison, None
            ranks.raise_on_all(error)

    @dynamo.breaks_graph
    def _post(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._depth > 1:
            self._depth -= 1
            return
        try:
            if not self._no_step:
                self._finish(optimizer)
        finally:
            self._depth = 0

    def _finish(self, optimizer: Optimizer) -> None:
        with torch.no_grad():
            self._updates()
        self._before.clear()
        self._call("step_post", optimizer)
        self._agree("update", "step_post")
        if self._end is not None:
            self._end()

    def _updates(self) -> None:
        moved: dict[LiveHook, tuple[list[Site], list[Tensor | None]]] = {}
        for site, old in self._before:
            parameter = site.target.parameter()
            if parameter is None:
                continue
            update = parameter.detach() - old
            if site.live.gauge is not None or site.live.claim.merges:
                sites, updates = moved.setdefault(site.live, ([], []))
                sites.append(site)
                updates.append(update)
            else:
                self._fire(site)(local(update))
        for live, (sites, updates) in moved.items():
            if live.claim.merges:
                self._parts(live, sites, updates)
            else:
                self._together(live, sites, [_part(update) for update in updates])

    def _fire(self, site: Site) -> Fire:
        fire = self._fires.get(site)
        if fire is None:
            tensors = site.target.kind == "parameter"
            fire = self._fires[site] = make_fire(site, captured=True) if tensors else make_call(site)
        return fire

    def _call(self, point: str, optimizer: Optimizer) -> None:
        for live in self._lives:
            if live.active and live.hook.at == point:
                for site in live.sites:
                    if site.target.owner() is optimizer:
                        self._fire(site)(optimizer)

    @torch.no_grad()
    def _finals(self) -> None:
        lives = [live for live in self._lives if live.active and live.hook.at == "grad_final"]
        if not lives:
            return
        self._reach.look()
        found = [(live, self._reach.of(live)) for live in lives]
        _sum({id(p): p for _, reached in found if reached.sharded for p in reached.parameters}.values())
        stage = Stage()
        for live, reached in found:
            stage.make_way(live)
            if live.claim.merges and live.definition.modifies:
                stage.add(live, reached)
            elif live.claim.over_hook:
                self._over_hook(live, reached)
            else:
                self._each(live, reached)
        stage.carry_out()

    def _together(self, live: LiveHook, sites: list[Site], given: list[Tensor | None]) -> None:
        """All of an observer's sites in one pass."""
        if not live.in_phase():
            for site in sites:
                site.skip(out_of_phase(live))
            return
        tensors: list[Tensor | None] = [None] * len(live.sites)
        for site, tensor in zip(sites, given, strict=True):
            if tensor is None:
                site.skip(NO_GRADIENT)
            elif tensor.layout is not torch.strided:
                live.failed(site, unmeasurable(tensor))
            else:
                tensors[site.slot] = tensor
        gauge = live.gauge
        if gauge is None or not gauge.fits(tensors):
            gauge = live.make_gauge(tensors)
        measured = [site for site in sites if tensors[site.slot] is not None]
        if live.partials is None or not measured:
            return
        try:
            columns = gauge(tensors, self._values(live, measured)) if gauge is not None else None
        except Exception:  # one by one, so that it is said of the site it is about
            columns, live.gauge = None, None
        if columns is None:
            for site in measured:
                self._fire(site)(tensors[site.slot])
            return
        live.partials.add_together([site.slot for site in measured], columns)
        for site in measured:
            count(site)

    @staticmethod
    def _values(live: LiveHook, measured: list[Site]) -> list[Tensor | None]:
        """The parameters of what is measured, by slot, if the action asks for them."""
        if not live.definition.needs_value:
            return []
        values: list[Tensor | None] = [None] * len(live.sites)
        for site in measured:
            parameter = site.target.parameter()
            values[site.slot] = None if parameter is None else local(parameter)
        return values

    def _each(self, live: LiveHook, reached: Reached) -> None:
        if live.claim.merges and live.partials is not None:
            self._parts(live, reached.sites, [p.grad for p in reached.parameters])
        elif live.gauge is not None:
            self._together(live, reached.sites, [_part(p.grad) for p in reached.parameters])
        else:
            for site, parameter in zip(reached.sites, reached.parameters, strict=True):
                grad = parameter.grad
                if grad is None:
                    site.skip(NO_GRADIENT)
                    continue
                _replace(parameter, self._fire(site)(local(grad)))

    def _parts(self, live: LiveHook, sites: list[Site], given: list[Tensor | None]) -> None:
        """Of tensors that are spread over ranks, what this rank stands for; they are merged when the step ends."""
        mine: list[Site] = []
        parts: list[Tensor | None] = []
        for site, tensor in zip(sites, given, strict=True):
            if tensor is not None and not (local(tensor).numel() and counts(tensor, live.claim.first(site.name))):
                if live.in_phase():
                    count(site)  # another rank measures it
                else:
                    site.skip(out_of_phase(live))
                continue
            mine.append(site)
            parts.append(None if tensor is None else local(tensor))
        if live.gauge is not None:
            self._together(live, mine, parts)
            return
        for site, part in zip(mine, parts, strict=True):
            if part is None:
                site.skip(NO_GRADIENT)
            else:
                self._fire(site)(part)

    def _over_hook(self, live: LiveHook, reached: Reached) -> None:
        """Measured over all the hook's targets, then applied to each."""
        measure = live.measure
        assert measure is not None
        given = []
        wanted = live.in_phase()
        for site, parameter in zip(reached.sites, reached.parameters, strict=True):
            if not wanted:
                site.skip(out_of_phase(live))
            elif parameter.grad is None:
                site.skip(NO_GRADIENT)
            else:
                given.append((site, parameter, local(parameter.grad)))
        if not given:
            return
        parts = []
        for site, _, part in given:
            try:
                parts.append(measure(part))
            except Exception as error:
                live.failed(site, error)
                return
        first = next(iter(parts[0].values())).device
        columns = {n: torch.stack([p[n].to(first) for p in parts]) for n in live.definition.partials}
        merged = {n: over(column, live.definition.partials[n].merge)[0] for n, column in columns.items()}
        for site, parameter, part in given:
            _replace(parameter, apply(site, part, {n: m.to(part.device) for n, m in merged.items()}))

    @torch.no_grad()
    def _copy_parameters(self) -> None:
        lives = [live for live in self._lives if live.active and live.hook.at == "update"]
        if lives:
            self._reach.look()
        for live in lives:
            reached = self._reach.of(live)
            copies = [p.detach().clone() for p in reached.parameters]
            self._before += zip(reached.sites, copies, strict=True)


def _part(grad: Tensor | None) -> Tensor | None:
    return None if grad is None else local(grad)


def _replace(parameter: Tensor, out: Tensor | None) -> None:
    """By what a modifier returned for this rank's part of its gradient."""
    if out is None:
        return
    if parameter.grad is not None and is_sharded(parameter.grad):
        local(parameter.grad).copy_(out)
    else:
        parameter.grad = out


def _sum(parameters: Iterable[Tensor]) -> None:
    """A gradient of which ranks hold summands is what the optimizer uses once it is summed."""
    for parameter in parameters:
        if parameter.grad is not None:
            whole = summed(parameter.grad)
            if whole is not parameter.grad:
                parameter.grad = whole


def _unscale(optimizer: Optimizer) -> None:
    """A fused optimizer unscales inside its step; what the hooks see must be unscaled already."""
    scale = private.pending_scale(optimizer)
    if scale is None:
        return
    with torch.no_grad():
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.div_(scale.to(parameter.grad.device))  # as the fused kernels do, to the bit
    private.clear_scale(optimizer)


def _is_no_step(optimizer: Optimizer, kwargs: Any) -> bool:
    """A step that GradScaler makes a fused optimizer skip, or the one DCP fakes to create optimizer state."""
    skipped = private.found_inf(optimizer)
    if skipped is not None and skipped.item():  # GradScaler itself reads it for an optimizer that is not fused
        return True
    fake = set(kwargs) == {"closure"} and kwargs["closure"] is None and not optimizer.state
    return fake and all(float(g["lr"]) == 0.0 for g in optimizer.param_groups)
