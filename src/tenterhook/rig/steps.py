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
from tenterhook.actions import unmeasurable
from tenterhook.rig import torch_private as private
from tenterhook.rig.fire import Fire, apply, count, make_call, make_fire, out_of_phase
from tenterhook.rig.ledger import Site
from tenterhook.rig.live import LiveHook
from tenterhook.rig.names import is_sharded
from tenterhook.rig.reach import Reach, Reached
from tenterhook.rig.rigging import Rigging

NO_GRADIENT = "no gradient at the optimizer's step"


class Steps:
    """What happens around one optimizer's step, for one rig."""

    def __init__(self, name: str, optimizer: Optimizer, rigging: Rigging, *, end: Callable[[], None] | None) -> None:
        self.name = name
        self._reach = Reach(name, rigging)
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

    def _pre(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        nested = self._nested()
        self._depth += 1
        if nested:
            return None
        self._no_step = _is_no_step(optimizer, kwargs)
        if self._no_step or not any(live.active for live in self._lives):
            return None
        _unscale(optimizer)
        self._call("step_pre", optimizer)
        closure = kwargs.get("closure") or next((a for a in args[1:2] if callable(a)), None)
        if closure is None:
            self._finals()
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
        return loss

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
        if self._end is not None:
            self._end()

    def _updates(self) -> None:
        moved: dict[LiveHook, tuple[list[Site], list[Tensor | None]]] = {}
        for site, old in self._before:
            parameter = site.target.parameter()
            if parameter is None:
                continue
            update = parameter.detach() - old
            if site.live.gauge is not None and not is_sharded(update):
                sites, updates = moved.setdefault(site.live, ([], []))
                sites.append(site)
                updates.append(update)
            else:
                self._fire(site)(update)
        for live, (sites, updates) in moved.items():
            self._together(live, sites, updates)

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
        if lives:
            self._reach.look()
        for live in lives:
            reached = self._reach.of(live)
            if live.claim.over_hook:
                self._over_hook(live, reached)
            else:
                self._each(live, reached)

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
            values[site.slot] = site.target.parameter()
        return values

    def _each(self, live: LiveHook, reached: Reached) -> None:
        if live.gauge is not None and not reached.sharded:
            self._together(live, reached.sites, [p.grad for p in reached.parameters])
            return
        sharded = []
        for site, parameter in zip(reached.sites, reached.parameters, strict=True):
            grad = parameter.grad
            if grad is None:
                site.skip(NO_GRADIENT)
            elif is_sharded(grad) and live.definition.two_phase:
                sharded.append((site, grad))
            elif is_sharded(grad):
                local = grad.to_local()  # type: ignore[attr-defined]
                _write_local(local, self._fire(site)(local))
            else:
                out = self._fire(site)(grad)
                if out is not None:
                    parameter.grad = out
        if sharded:
            self._merged_over_ranks(live, sharded)

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
                given.append((site, parameter))
        if not given:
            return
        sharded = any(is_sharded(p.grad) for _, p in given)
        parts = []
        for site, parameter in given:
            try:
                parts.append(measure(_local(parameter.grad)))
            except Exception as error:
                live.failed(site, error)
                return
        first = next(iter(parts[0].values())).device
        columns = {n: torch.stack([p[n].to(first) for p in parts]) for n in live.definition.partials}
        how = {n: p.merge for n, p in live.definition.partials.items()}
        merged = {n: _merged(column, how[n]) for n, column in columns.items()}
        if sharded:
            merged = ranks.merge(merged, how)
        for site, parameter in given:
            local = _local(parameter.grad)
            here = {n: m.to(local.device) for n, m in merged.items()}
            out = apply(site, local, here)
            if out is None:
                continue
            if is_sharded(parameter.grad):
                _write_local(local, out)
            else:
                parameter.grad = out

    def _merged_over_ranks(self, live: LiveHook, sharded: list[tuple[Site, Tensor]]) -> None:
        """Two-phase on shards: all the targets' partial results in one merge, then each is applied."""
        measure = live.measure
        assert measure is not None
        how = {n: p.merge for n, p in live.definition.partials.items()}
        parts = [measure(_local(grad)) for _, grad in sharded]
        merged = ranks.merge({n: torch.stack([p[n].double() for p in parts]) for n in how}, how)
        for row, (site, grad) in enumerate(sharded):
            mine = {n: merged[n][row] for n in how}
            if live.partials is not None:
                if live.in_phase():
                    live.partials.add(site.slot, mine)
                    count(site)
            else:
                local = _local(grad)
                _write_local(local, apply(site, local, mine))

    @torch.no_grad()
    def _copy_parameters(self) -> None:
        lives = [live for live in self._lives if live.active and live.hook.at == "update"]
        if lives:
            self._reach.look()
        for live in lives:
            reached = self._reach.of(live)
            copies = [p.detach().clone() for p in reached.parameters]
            self._before += zip(reached.sites, copies, strict=True)


def _local(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def _write_local(local: Tensor, out: Tensor | None) -> None:
    if out is not None:
        local.copy_(out)


def _merged(column: Tensor, how: str) -> Tensor:
    if how == "sum":
        return column.sum(0)
    # The norm of norms is taken as torch.nn.utils.clip_grad_norm_ takes it, to the bit.
    return column.amax(0) if how == "max" else torch.linalg.vector_norm(column, dim=0)


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
