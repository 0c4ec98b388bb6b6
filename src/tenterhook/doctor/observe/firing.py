"""Observe one call of a raw hook: what the hook was given, what it returned, and what it changed."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tenterhook import torch_internals as private
from tenterhook.doctor.observe.distribution import DDP
from tenterhook.doctor.observe.firing_sample import FiringSample, comparable, is_plain, quotients, same, summary
from tenterhook.doctor.observe.hook_record import (
    BACKWARD,
    FORWARD,
    PREFIXED,
    SAMPLES,
    TENSOR,
    FailedCallError,
    HeldGradient,
    HookRecord,
    Observer,
    users_of,
)
from tenterhook.doctor.observe.stored import VALUES, snapshot, stored_since, tensors


def observe_firing(hook: HookRecord, args: tuple[Any, ...]) -> Observer:
    """Observe one call of the hook's function with these arguments.

    Send the value that the function returned to the generator, or throw a FailedCallError.
    """
    looking = len(hook.samples) < SAMPLES and hook.fired < 4 * SAMPLES
    if not hook.fired:
        hook.spread = hook.distribution.kind(hook.owner)
    if hook.kind in TENSOR:
        observe = _on_gradient if hook.kind == TENSOR[0] else _on_accumulated
        parameter = hook.owner.now() if looking and hook.spread == DDP else None
        if isinstance(parameter, Tensor):
            yield from _on_replica(hook, parameter, observe, args)
        else:
            yield from observe(hook, args, looking)
        return
    if hook.kind in PREFIXED and len(args) > 2 and isinstance(args[2], str):
        hook.prefix = hook.prefix or args[2]
    watched = hook.kind in BACKWARD
    before = [(t, private.version(t)) for t in tensors(args)] if watched else []
    if before and before[-1][0].requires_grad and len(hook.kept) < SAMPLES:
        hook.kept.append((hook.timeline.now(), weakref.ref(before[-1][0])))
    stores = hook.kind in FORWARD and len(hook.stored) < VALUES
    contents = snapshot(hook.fn()) if stores else []
    out = yield from _call(hook)
    if stores:
        training = bool(getattr(args[0], "training", True)) if args else True
        new = list(stored_since(contents, args, training=training, within=hook.timeline.within))
        hook.stored += new
        hook.timeline.stored += new
    if watched:
        hook.in_place += any(private.version(t) != was for t, was in before)
        if hook.kind == BACKWARD[1] and len(args) > 1 and isinstance(args[1], tuple):
            hook.without_input += bool(args[1]) and all(g is None for g in args[1])
    if out is not None:
        hook.returned += 1
        _look_at_return(hook, out, args)
        given = args[1] if watched and len(args) > 1 else None
        pair = next(
            (
                (a, b)
                for a, b in zip(_tuple(given), _tuple(out))
                if isinstance(a, Tensor) and isinstance(b, Tensor) and a is not b
            ),
            None,
        )
        hook.changed += 1 if pair is not None or not watched else 0
        if pair is not None and looking and comparable(*pair):
            with torch.no_grad():
                hook.samples.append(FiringSample.at(*pair, hook.timeline))
    elif hook.kind in FORWARD and len(hook.kept) < SAMPLES:
        _follow(hook, args)
    if hook.kind in FORWARD:
        _see_checkpoint(hook, out)


def _on_replica(
    hook: HookRecord, parameter: Tensor, observe: Callable[..., Observer], args: tuple[Any, ...]
) -> Observer:
    """Record how the hook changes a parameter and its gradient before DDP reduces the gradient."""
    accumulated = hook.kind == TENSOR[1]
    value, given = parameter.detach().clone(), parameter.grad if accumulated else args[0]
    given = given.detach().clone() if given is not None and is_plain(given) else None
    out = yield from observe(hook, args, True)
    made = parameter.grad if accumulated else out
    with torch.no_grad():
        if not same(value, parameter.detach()):
            hook.drifted, hook.drift = hook.drifted + 1, hook.drift or summary(parameter)
        hook.dropped += accumulated and given is not None and made is None
        if given is not None and made is not None and comparable(given, made):
            factors = quotients(made, given)
            hook.uneven += hook.factors is not None and not torch.allclose(factors, hook.factors, equal_nan=True)
            hook.factors = factors if hook.factors is None else hook.factors


def _see_checkpoint(hook: HookRecord, out: Any) -> None:
    if private.graph_task_id() != -1:
        hook.recomputed += 1
        return
    made = next(tensors((out,)), None)
    node = private.checkpointed(made) if made is not None else None
    if node is not None and len(hook.checkpointed) < SAMPLES:
        hook.checkpointed[node] = hook.timeline.backwards


def _on_gradient(hook: HookRecord, args: tuple[Any, ...], looking: bool) -> Observer:
    given = args[0] if args else None
    if not isinstance(given, Tensor):
        hook.nones += 1
        return (yield from _call(hook))
    was = private.version(given)
    copy = given.detach().clone() if looking and comparable(given, given) else None
    if hook.owner.leaf:
        leaf = hook.owner.now() if looking else None
        held = leaf.grad if isinstance(leaf, Tensor) else None
        with torch.no_grad():
            adds = held is not None and is_plain(held) and bool(held.any())
        hook.accumulating += adds
        hook.adding = hook.adding + 1 if adds else 0
    elif looking:
        tensor = hook.owner.now()
        hook.rebased |= isinstance(tensor, Tensor) and private.version(tensor) != hook.owner.version
    if given.requires_grad and len(hook.kept) < SAMPLES:
        hook.kept.append((hook.timeline.now(), weakref.ref(given)))
    out = yield from _call(hook)
    now = private.version(given)
    with torch.no_grad():
        edited = copy is not None and was == now and not same(copy, given.detach())
    hook.in_place += was != now or edited
    if isinstance(out, Tensor):
        hook.returned += 1
        if out is not given:
            hook.changed += 1
            if copy is not None and comparable(copy, out):
                with torch.no_grad():
                    hook.samples.append(FiringSample.at(copy, out, hook.timeline))
    return out


def _on_accumulated(hook: HookRecord, args: tuple[Any, ...], looking: bool) -> Observer:
    parameter = args[0]
    grad = parameter.grad
    hook.nones += grad is None
    was = (id(grad), private.version(grad)) if grad is not None else None
    users = users_of(grad) if looking and grad is not None else (0, 0)
    out = yield from _call(hook)
    after = parameter.grad
    now = (id(after), private.version(after)) if after is not None else None
    hook.returned += out is not None
    hook.changed += now != was
    if looking and grad is not None and after is grad and now is not None:
        # The frame of the hook still exists and may hold the gradient. Look again when the backward pass has ended.
        hook.firings.held.append(HeldGradient(hook, weakref.ref(grad), users, now[1] or 0))
    return out


def _call(hook: HookRecord) -> Observer:
    timeline, distribution = hook.timeline, hook.distribution
    hook.firings.since_step.add(hook.number)
    outer, distribution.firing = distribution.firing, hook.label
    try:
        out = yield
    except FailedCallError as error:
        hook.raised = str(error)
        raise
    finally:
        distribution.firing = outer
    hook.fired += 1
    hook.last = timeline.now()
    if hook.fired == 1:
        hook.firings.waiting.pop(hook.number, None)
    if hook.removed is not None:
        hook.late_firings += 1
    running = timeline.running  # read once: another thread may end its backward pass meanwhile
    if running is not None:
        number, count = hook.in_backward
        count = count + 1 if number == timeline.backwards else 1
        hook.in_backward = (timeline.backwards, count)
        hook.most_in_backward = max(hook.most_in_backward, count)
        hook.graphs.add(running.create_graph)
    return out


def _follow(hook: HookRecord, args: tuple[Any, ...]) -> None:
    """Track the tensor that the hook received, to determine later whether the hook kept it alive."""
    shown = next((t for t in tensors(args[-1:]) if t.requires_grad and t.grad_fn is not None), None)
    if shown is not None and torch.is_grad_enabled():
        hook.kept.append((hook.timeline.now(), weakref.ref(shown)))


def _look_at_return(hook: HookRecord, out: Any, args: tuple[Any, ...]) -> None:
    """Record whether a forward hook returned something that it probably should not return."""
    if hook.kind == FORWARD[1] and args and hook.odd_return is None:
        earlier = hook.last_return() if hook.last_return is not None else None
        if isinstance(out, Tensor) and out is earlier and out is not args[-1]:
            hook.odd_return = "the value of an earlier call"
        else:
            hook.odd_return = _odd(out, args[-1])
        hook.last_return = weakref.ref(out) if isinstance(out, Tensor) else None
    elif hook.kind == FORWARD[0] and len(args) > 1 and not hook.gets_kwargs:
        given, returned = len(args[1]), len(out) if isinstance(out, tuple) else 1
        if returned < given:
            hook.fewer_args = returned, given


def _odd(out: Any, output: Any) -> str | None:
    """Describe what a hook returned if it is not of the same kind as the output of the module."""
    if isinstance(out, Tensor) and isinstance(output, Tensor):
        return None
    if isinstance(out, type(output)) or isinstance(output, type(out)):
        return None
    return f"{_kind(out)} instead of {_kind(output)}"


def _kind(value: Any) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
