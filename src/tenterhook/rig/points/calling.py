"""Firing: the user's function, wrapped. Name in errors, return contract, no in-place, counters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tenterhook.errors import ContractError, InPlaceError, ReturnError
from tenterhook.resolve.sharding import counts, local
from tenterhook.resolve.targets import is_sharded
from tenterhook.rig.runtime.attached_hook import LiveHook, Site
from tenterhook.rig.runtime.step_clock import Pass
from tenterhook.torch_internals import compiler as dynamo
from tenterhook.torch_internals.autograd import at_end_of_backward, is_functorch

#: given a value or None, gives what replaces it, or None to leave it
Fire = Callable[[Any], Any]


def make_fire(site: Site, *, captured: bool = False) -> Fire:
    """The wrapped action of one site. `captured`: a graph holds it, so it must look whether it is still wanted."""
    definition = site.live.definition
    if definition.two_phase:
        return _two_phase(site) if definition.modifies else _measuring(site)
    if not definition.modifies and not definition.plain:
        return _observing(site)
    live = site.live
    if captured or live.claim.phase != "any" or live.claim.on_error != "raise" or site.ctx is not None:
        return _acting(site)
    return _acting_plainly(site)


def chain(fires: Sequence[Fire]) -> Fire:
    """One after another, each given the one before's result."""
    if len(fires) == 1:
        return fires[0]

    @dynamo.breaks_graph
    def fire(x: Any) -> Any:
        new = None
        for one in fires:
            out = one(x)
            if out is not None:
                x = new = out
        return new

    return fire


def _acting_plainly(site: Site) -> Fire:
    """The everyday case, kept to the least work: a function of the value alone, always wanted."""
    live = site.live
    call, clock, tick = live.call, live.clock, live.clock.tick

    @dynamo.breaks_graph
    def fire(x: Tensor | None) -> Tensor | None:
        if x is None:
            return None
        try:
            version = x._version
        except RuntimeError:
            version = None  # an inference tensor has none
        try:
            out = call(x)
        except Exception as error:
            return live.failed(site, error)  # type: ignore[func-returns-value]
        if version is not None and x._version != version:
            return live.failed(site, _in_place())  # type: ignore[func-returns-value]
        before = site.fired
        site.fired = before + 1
        site.last = clock.step
        site.order = tick()
        if not before:
            site.first = clock.step
        return None if out is None else _accepted(site, x, out)

    return fire


def _acting(site: Site) -> Fire:
    live, ctx = site.live, site.ctx
    call, always = live.call, live.claim.phase == "any"

    @dynamo.breaks_graph
    def fire(x: Tensor | None) -> Tensor | None:
        if x is None or not live.active or site.dormant is not None:
            return None
        if not always and not live.in_phase():
            site.skip(out_of_phase(live))
            return None
        version = _version(x)
        try:
            out = call(x) if ctx is None else call(x, _placed(site, x))
        except Exception as error:
            return live.failed(site, error)  # type: ignore[func-returns-value]
        if version != _version(x):
            return live.failed(site, _in_place())  # type: ignore[func-returns-value]
        count(site)
        return None if out is None else _accepted(site, x, out)

    return fire


def _observing(site: Site) -> Fire:
    """A named observer: given the value without its graph, in the phase it is meant for."""
    live, ctx = site.live, site.ctx
    call = live.call

    @dynamo.breaks_graph
    def fire(x: Tensor | None) -> None:
        if x is None or not _to_observe(site, x):
            return
        version = _version(x)
        try:
            with torch.no_grad():
                seen = x.detach()
                out = call(seen) if ctx is None else call(seen, _placed(site, x))
            if out is not None:
                raise ReturnError(
                    f"{live.definition.name} observes, but returned a {type(out).__name__}",
                    remedy="return nothing, or register it with modifies=True",
                )
            if version != _version(x):
                raise _in_place()
        except Exception as error:
            live.failed(site, error)
            return
        count(site)

    return fire


def _measuring(site: Site) -> Fire:
    """A two-phase observer: its partial results go into the site's row."""
    live = site.live
    measure, partials, slot = live.measure, live.partials, site.slot
    needs_value, merges = live.definition.needs_value, live.claim.merges
    assert measure is not None and partials is not None

    @dynamo.breaks_graph
    def fire(x: Tensor | None) -> None:
        if x is None or not _to_observe(site, x):
            return
        try:
            with torch.no_grad():
                seen = x.detach()
                if merges and is_sharded(seen):
                    if not counts(seen, live.claim.first(site.name)):
                        count(site)  # another rank measures it
                        return
                    seen = local(seen)
                value = site.target.parameter() if needs_value else None
                partials.add(slot, measure(seen) if value is None else measure(seen, local(value)))
            if live.at_backward_end is not None and not live.clock.looks:
                live.clock.looks = True
                at_end_of_backward(live.at_backward_end)
        except Exception as error:
            live.failed(site, error)
            return
        count(site)

    return fire


def _two_phase(site: Site) -> Fire:
    """A two-phase modifier where one tensor is the whole target: measured, then applied at once."""
    live = site.live
    measure = live.measure
    assert measure is not None

    @dynamo.breaks_graph
    def fire(x: Tensor | None) -> Tensor | None:
        if x is None or not live.active or site.dormant is not None:
            return None
        if not live.in_phase():
            site.skip(out_of_phase(live))
            return None
        try:
            merged = measure(x)
        except Exception as error:
            return live.failed(site, error)  # type: ignore[func-returns-value]
        return apply(site, x, merged)

    return fire


def apply(site: Site, x: Tensor, merged: Any) -> Tensor | None:
    """The second phase of a two-phase modifier."""
    live, ctx = site.live, site.ctx
    version = _version(x)
    assert ctx is not None, "a two-phase modifier takes ctx"
    try:
        _placed(site, x)
        ctx.merged = merged
        out = live.call(x, ctx)
    except Exception as error:
        return live.failed(site, error)  # type: ignore[func-returns-value]
    if version != _version(x):
        return live.failed(site, _in_place())  # type: ignore[func-returns-value]
    count(site)
    return None if out is None else _accepted(site, x, out)


def make_replay(site: Site) -> Callable[[Pass], Fire]:
    """The same modification once more, for a checkpoint that recomputes a pass: nothing is counted or written."""
    live, ctx = site.live, site.ctx
    definition = live.definition

    def replay(forward: Pass, x: Tensor) -> Tensor | None:
        # A function that never changed anything is an observer: it does not look twice.
        if definition.plain and not site.changed:
            return None
        if not live.in_phase(forward.training):
            return None
        if ctx is not None:
            _placed(site, x)
            ctx.state.writable = False  # type: ignore[attr-defined]
            ctx._emit, emit = None, ctx._emit
        try:
            if definition.two_phase:
                assert ctx is not None and live.measure is not None
                ctx.merged = live.measure(x)
            out = live.call(x) if ctx is None else live.call(x, ctx)
        finally:
            if ctx is not None:
                ctx.state.writable = True  # type: ignore[attr-defined]
                ctx._emit = emit
        return None if out is x else out

    return lambda forward: partial(replay, forward)


def make_call(site: Site, *, may_return: bool = False) -> Fire:
    """For values that are not tensors: an optimizer, a state dict, a prefix."""
    live = site.live

    @dynamo.breaks_graph
    def fire(value: Any) -> Any:
        if not live.active:
            return None
        try:
            out = live.call(value) if site.ctx is None else live.call(value, site.ctx)
            if out is not None and not may_return:
                raise ContractError(
                    f"it returned a {type(out).__name__}, and nothing can be replaced here",
                    remedy="change the dict in place, and return nothing",
                )
        except Exception as error:
            live.failed(site, error)
            return None
        count(site)
        return out

    return fire


def count(site: Site) -> None:
    clock = site.live.clock
    site.fired += 1
    site.last = clock.step
    site.order = clock.tick()
    if site.first < 0:
        site.first = clock.step


def _to_observe(site: Site, x: Tensor) -> bool:
    live = site.live
    if not live.active or site.dormant is not None:
        return False
    if not live.in_phase():
        site.skip(out_of_phase(live))
        return False
    if is_functorch(x):
        site.skip("inside torch.func, where nothing may be kept")
        return False
    return True


def _version(x: Tensor) -> int | None:
    return None if x.is_inference() else x._version


def _placed(site: Site, x: Tensor) -> Any:
    ctx = site.ctx
    assert ctx is not None
    ctx.state.device = x.device  # type: ignore[attr-defined]
    return ctx


def _accepted(site: Site, x: Tensor, out: Any) -> Tensor | None:
    """What an action returned, if it may replace `x`."""
    if out is x:
        return None
    wrong = _wrong(site.live, x, out)
    if wrong is not None:
        return site.live.failed(site, wrong)  # type: ignore[func-returns-value]
    site.changed += 1
    if site.live.samples(x):
        _sample(site, x, out)
    return out  # type: ignore[no-any-return]


@torch.no_grad()
def _sample(site: Site, x: Tensor, out: Tensor) -> None:
    """Record how much was changed, in parts of what was given."""
    before = torch.linalg.vector_norm(x.detach().float())
    change = torch.linalg.vector_norm(out.detach().float() - x.detach().float())
    live, ctx = site.live, site.ctx
    assert live.recorder is not None
    call, leaf = (ctx.call, ctx.leaf) if ctx is not None else (0, 0)
    live.recorder.emit(live.hook.id, site.name, "change", call, leaf, torch.where(before == 0, 0.0, change / before))


def _wrong(live: LiveHook, x: Tensor, out: Any) -> ContractError | None:
    if not isinstance(out, Tensor):
        return ContractError(
            f"{live.definition.name} returned a {type(out).__name__}, not a tensor",
            remedy="return the new tensor, or nothing to leave the value as it is",
        )
    if not live.hook.point.modifies:
        return ContractError(
            f"{live.definition.name} returned a tensor, but this point is only observed",
            remedy="return nothing; to change a gradient use grad or grad_final",
        )
    if (out.shape, out.dtype, out.device, out.layout) != (x.shape, x.dtype, x.device, x.layout):
        return ContractError(
            f"{live.definition.name} returned {_form(out)} for {_form(x)}",
            remedy="return a tensor of the same shape, dtype, device and layout",
        )
    return None


def _form(t: Tensor) -> str:
    layout = "" if t.layout is torch.strided else f" {t.layout}"
    return f"{str(t.dtype).removeprefix('torch.')}{tuple(t.shape)} on {t.device}{layout}"


def _in_place() -> InPlaceError:
    return InPlaceError(
        "the action changed the value in place, which can corrupt other gradients that share its memory",
        remedy="return a new tensor: x * 2 instead of x.mul_(2)",
    )


def out_of_phase(live: LiveHook) -> str:
    mode = "eval" if live.claim.phase == "train" else "train"
    return f"the root is in {mode} mode (When(phase='any') fires in both)"
