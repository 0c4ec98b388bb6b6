"""Calls actions, checks their return values, detects in-place changes, counts firings, and adds locations to errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tenterhook.actions import Context
from tenterhook.audit import Imbalance
from tenterhook.errors import ContractError, InPlaceError, ReturnError
from tenterhook.record import Recorder
from tenterhook.resolve.dormancy import GONE
from tenterhook.resolve.sharding import is_counted_here, local
from tenterhook.rig.runtime.attached_hook import AttachedHook, Site
from tenterhook.rig.runtime.forward_pass import ForwardPass
from tenterhook.torch_internals import compiler as dynamo
from tenterhook.torch_internals import is_functorch, read_version, version

#: takes a value or None; returns the replacement, or None to keep the value
Fire = Callable[[Any], Any]

#: number of steps between measurements of the size of a modifier's change
SAMPLED = 10


def make_fire(site: Site, *, captured: bool = False) -> Fire:
    """Return the function that calls a site's action.

    `captured` is True if an autograd graph holds the function. The hook may be switched off before the backward pass,
    so the function checks at each call whether the hook is still active.
    """
    definition, resolved = site.attached.definition, site.attached.resolved
    if definition.two_phase:
        return _two_phase(site) if definition.modifies else _measuring(site)
    if not definition.modifies and not definition.plain:
        return _observing(site)
    if captured or resolved.phase != "any" or resolved.on_error != "raise" or site.ctx is not None:
        return _acting(site)
    return _acting_plainly(site)


def chain(fires: Sequence[Fire]) -> Fire:
    """Return a function that calls the given functions in order and passes each replacement to the next function."""
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
    """Return the fast-path function, which handles the most common case.

    In this case, the action takes only the value and fires in every phase, and `on_error` is "raise".
    """
    attached = site.attached
    call, clock, tick = attached.call, attached.clock, attached.clock.tick

    @dynamo.breaks_graph
    def fire(x: Tensor | None) -> Tensor | None:
        if x is None:
            return None
        try:
            before: int | None = read_version(x)
        except RuntimeError:
            before = None  # an inference tensor has no version counter
        try:
            out = call(x)
        except Exception as error:
            attached.fail(site, error)
            return None
        if before is not None and read_version(x) != before:
            attached.fail(site, _in_place())
            return None
        fired = site.fired
        site.fired = fired + 1
        site.last = clock.step
        site.order = tick()
        if not fired:
            site.first = clock.step
        return None if out is None else _accepted(site, x, out)

    return fire


def _acting(site: Site) -> Fire:
    """Return the general function for plain functions and named modifiers.

    The function does nothing if the hook is inactive, and passes the context to actions that take one.
    """
    attached, ctx, clock = site.attached, site.ctx, site.attached.clock
    call, always = attached.call, attached.resolved.phase == "any"

    @dynamo.breaks_graph
    def fire(x: Tensor | None) -> Tensor | None:
        if x is None:
            return None
        if not attached.active or site.blocked:
            _note_lost(site)
            return None
        if not always and not attached.in_phase():
            site.skip(out_of_phase(attached))
            return None
        before = version(x)
        try:
            out = call(x) if ctx is None else call(x, _placed(ctx, x))
        except Exception as error:
            attached.fail(site, error)
            return None
        if before != version(x):
            attached.fail(site, _in_place())
            return None
        site.count(clock)
        return None if out is None else _accepted(site, x, out)

    return fire


def _observing(site: Site) -> Fire:
    """Return the function that calls a named observer with the value detached from its graph."""
    attached, ctx, clock = site.attached, site.ctx, site.attached.clock
    call = attached.call

    @dynamo.breaks_graph
    def fire(x: Tensor | None) -> None:
        if x is None or not _is_observed(site, x):
            return
        before = version(x)
        try:
            with torch.no_grad():
                seen = x.detach()
                out = call(seen) if ctx is None else call(seen, _placed(ctx, x))
            if out is not None:
                raise ReturnError(
                    f"{attached.definition.name} is an observer, but returned a value of type {type(out).__name__}",
                    remedy="return nothing, or register the action with modifies=True",
                )
            if before != version(x):
                raise _in_place()
        except Exception as error:
            attached.fail(site, error)
            return
        site.count(clock)

    return fire


def _measuring(site: Site) -> Fire:
    """Return the function that calls a two-phase observer and adds its partial results to the site's row."""
    attached, clock = site.attached, site.attached.clock
    watch = attached.gradient_watch
    measure, partials, slot = attached.definition.measure, attached.partials, site.slot
    needs_value = attached.definition.needs_value
    accumulated = site.point == "grad_accumulated"
    assert measure is not None and partials is not None

    @dynamo.breaks_graph
    def fire(x: Tensor | None) -> None:
        if x is None or not _is_observed(site, x):
            return
        try:
            with torch.no_grad():
                seen = x.detach()
                if attached.resolved.has_replicas:
                    if not is_counted_here(seen, attached.resolved.counted_rank(site.name)):
                        site.count(clock)  # another rank measures this tensor
                        return
                    seen = local(seen)
                parameter = site.target.parameter()
                if watch is not None:
                    watch.measured(parameter, accumulated=accumulated)
                value = parameter if needs_value else None
                partials.add(slot, measure(seen) if value is None else measure(seen, local(value)))
        except Exception as error:
            attached.fail(site, error)
            return
        site.count(clock)

    return fire


def _two_phase(site: Site) -> Fire:
    """Return the function that calls a two-phase modifier at a point where nothing is merged across ranks."""
    attached, measure = site.attached, site.attached.definition.measure
    assert measure is not None

    @dynamo.breaks_graph
    def fire(x: Tensor | None) -> Tensor | None:
        if x is None:
            return None
        if not attached.active or site.blocked:
            _note_lost(site)
            return None
        if not attached.in_phase():
            site.skip(out_of_phase(attached))
            return None
        try:
            merged = measure(x)
        except Exception as error:
            attached.fail(site, error)
            return None
        return apply(site, x, merged)

    return fire


def apply(site: Site, x: Tensor, merged: Any) -> Tensor | None:
    """Run the second phase of a two-phase modifier."""
    attached, ctx = site.attached, site.ctx
    assert ctx is not None, "a two-phase modifier takes ctx"
    before = version(x)
    try:
        _placed(ctx, x)
        ctx.merged = merged
        out = attached.call(x, ctx)
    except Exception as error:
        attached.fail(site, error)
        return None
    if before != version(x):
        attached.fail(site, _in_place())
        return None
    site.count(attached.clock)
    return None if out is None else _accepted(site, x, out)


def make_replay(site: Site) -> Callable[[ForwardPass], Fire]:
    """Return a function that takes a forward pass and returns the function that repeats the modifications of that pass.

    A recomputation changes no counters or state, and emits nothing.
    """
    attached, ctx = site.attached, site.ctx
    definition = attached.definition

    def replay(forward: ForwardPass, x: Tensor) -> Tensor | None:
        # A plain function that never changed a value counts as an observer. It must not receive the value twice.
        if definition.plain and not site.changed:
            return None
        if not attached.in_phase(forward.training):
            return None
        if ctx is None:
            out = attached.call(x)
            return None if out is x else out
        state: Any = _placed(ctx, x).state
        state.writable = False
        ctx._emit, emit = None, ctx._emit
        try:
            if definition.two_phase:
                assert definition.measure is not None
                ctx.merged = definition.measure(x)
            out = attached.call(x, ctx)
        finally:
            state.writable = True
            ctx._emit = emit
        return None if out is x else out

    return lambda forward: partial(replay, forward)


def make_call(site: Site, *, may_return: bool = False) -> Fire:
    """Return the function that calls an action with an object other than a tensor, such as a state dict or a prefix."""
    attached, clock = site.attached, site.attached.clock

    @dynamo.breaks_graph
    def fire(value: Any) -> Any:
        if not attached.active:
            return None
        try:
            out = attached.call(value) if site.ctx is None else attached.call(value, site.ctx)
            if out is not None and not may_return:
                raise ContractError(
                    f"the action returned a value of type {type(out).__name__}, "
                    "but this point does not replace its value",
                    remedy="change the dict in place and return nothing",
                )
        except Exception as error:
            attached.fail(site, error)
            return None
        site.count(clock)
        return out

    return fire


def _is_observed(site: Site, x: Tensor) -> bool:
    attached = site.attached
    if not attached.active or site.blocked:
        _note_lost(site)
        return False
    if not attached.in_phase():
        site.skip(out_of_phase(attached))
        return False
    if is_functorch(x):
        site.skip("the call ran inside torch.func, where tensors cannot be recorded")
        return False
    return True


def _note_lost(site: Site) -> None:
    """Report a part of the model that has lost its name between a forward pass and its backward pass."""
    attached = site.attached
    if attached.active and site.dormant == GONE and attached.hook.point.side == "backward":
        cause = (
            "a backward pass reached a part of the model that has lost this name since its forward pass, so the hook "
            "did not act on it"
        )
        remedy = "change the model between steps"
        attached.environment.found.add([Imbalance("TH703", cause, remedy, site.hook, site.point, target=site.name)])


def _placed(ctx: Context, x: Tensor) -> Context:
    """Set the device of the context's state to the device of the value, and return the context."""
    state: Any = ctx.state
    state.device = x.device
    return ctx


def _accepted(site: Site, x: Tensor, out: Any) -> Tensor | None:
    """Return `out` if it is a valid replacement for `x`, else None."""
    if out is x:
        return None
    attached = site.attached
    wrong = _contract_broken(attached, x, out)
    if wrong is not None:
        attached.fail(site, wrong)
        return None
    site.changed += 1
    if attached.clock.step % SAMPLED == 1 and attached.samples(x):
        recorder = attached.environment.recorder
        assert recorder is not None
        recorder.errors.contain("measuring the size of a change", _sample, site, recorder, x, out)
    new: Tensor = out
    return new


@torch.no_grad()
def _sample(site: Site, recorder: Recorder, x: Tensor, out: Tensor) -> None:
    """Record the norm of the change, relative to the norm of the original value."""
    before = torch.linalg.vector_norm(x.detach().float())
    change = torch.linalg.vector_norm(out.detach().float() - x.detach().float())
    ctx = site.ctx
    call, leaf = (ctx.call, ctx.leaf) if ctx is not None else (0, 0)
    recorder.emit(site.hook, site.name, "change", call, leaf, torch.where(before == 0, 0.0, change / before))


def _contract_broken(attached: AttachedHook, x: Tensor, out: Any) -> ContractError | None:
    name = attached.definition.name
    if not isinstance(out, Tensor):
        return ContractError(
            f"{name} returned a value of type {type(out).__name__}, not a tensor",
            remedy="return the new tensor, or return nothing to keep the value",
        )
    if not attached.hook.point.modifies:
        return ContractError(
            f"{name} returned a tensor, but this point can only be observed",
            remedy="return nothing, or use grad or grad_final to change a gradient",
        )
    if (out.shape, out.dtype, out.device, out.layout) != (x.shape, x.dtype, x.device, x.layout):
        return ContractError(
            f"{name} returned {_described(out)}, but the value was {_described(x)}",
            remedy="return a tensor of the same shape, dtype, device and layout",
        )
    return None


def _described(t: Tensor) -> str:
    layout = "" if t.layout is torch.strided else f" {t.layout}"
    return f"{str(t.dtype).removeprefix('torch.')}{tuple(t.shape)} on {t.device}{layout}"


def _in_place() -> InPlaceError:
    return InPlaceError(
        "the action changed the value in place, which can corrupt other tensors that share its memory",
        remedy="return a new tensor, for example x * 2 instead of x.mul_(2)",
    )


def out_of_phase(attached: AttachedHook) -> str:
    """Return the reason why a hook does not fire in the root module's current mode."""
    mode = "eval" if attached.resolved.phase == "train" else "train"
    return f"the root is in {mode} mode (When(phase='any') fires in both)"
