"""Observe one call of a raw hook: what the hook was given, what it returned, and what it changed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tenterhook import torch_internals as private
from tenterhook.doctor.observe.distribution import DDP
from tenterhook.doctor.observe.firing_sample import FiringSample, comparable, is_plain, quotients, same, summary
from tenterhook.doctor.observe.hook_kinds import BACKWARD, FORWARD, MULTI, PREFIXED, SAVING, STATE, TENSOR
from tenterhook.doctor.observe.hook_record import SAMPLES, HeldGradient, HookRecord, users_of
from tenterhook.doctor.observe.model_index import is_of_a_trace, names_of
from tenterhook.doctor.observe.observer import FailedCallError, Observer
from tenterhook.doctor.observe.values.changed_part import changed_part
from tenterhook.doctor.observe.values.derived import derived_of
from tenterhook.doctor.observe.values.returned import Versions, beside_the_loss, is_data
from tenterhook.doctor.observe.values.stored import (
    VALUES,
    Contents,
    Stored,
    memory_of,
    reachable,
    snapshot,
    stored_since,
    summed_in_half,
    tensors,
)


def observe_firing(hook: HookRecord, args: tuple[Any, ...]) -> Observer:
    """Observe one call of the hook's function with these arguments.

    Send the value that the function returned to the generator, or throw a FailedCallError.
    """
    looking = len(hook.samples) < SAMPLES and hook.fired < 4 * SAMPLES
    if not hook.fired:
        hook.spread = hook.distribution.kind(hook.owner)
        given = next(tensors(args), None)
        hook.device = given.device.type if given is not None else "cpu"
    if hook.kind in TENSOR:
        observe = _on_gradient if hook.kind == TENSOR[0] else _on_accumulated
        parameter = hook.owner.now() if looking and hook.spread == DDP else None
        if isinstance(parameter, Tensor):
            yield from _on_replica(hook, parameter, observe, args)
        else:
            yield from observe(hook, args, looking)
        return
    if hook.kind in FORWARD:
        yield from _on_forward(hook, args)
    elif hook.kind in BACKWARD:
        yield from _on_backward(hook, args, looking)
    else:
        yield from _on_other(hook, args)


def _on_forward(hook: HookRecord, args: tuple[Any, ...]) -> Observer:
    output = args[-1] if args else None
    hook.circumstances.note(args, hook.timeline, hook.owner.name)
    loss, given, contents = beside_the_loss(output), Versions.of(args[1:2]), _contents(hook, args)
    shown, weights = Versions.of(output), _weights(hook, args)
    derived = derived_of(args[0]) if hook.kind == FORWARD[0] and args and isinstance(args[0], nn.Module) else {}
    out = yield from _call(hook)
    stored = _note_stored(hook, contents, args)
    if _detaches(stored, args) and hook.timeline.running is None:
        hook.timeline.detaching[hook.number] = hook.note_terms
    if derived:
        hook.derived.compare(derived, args[0])
    if hook.kind == FORWARD[1]:
        hook.tensor_output |= isinstance(output, Tensor) and output.dim() > 1
        changed = shown.changed()
        hook.output_changed += bool(changed)
        hook.input_changed += bool(memory_of(changed) & memory_of(args[1:2]))
    if any(not same(was, now.detach()) for now, was in weights):
        hook.weights_changed += 1
        hook.weights_changed_after.add(hook.timeline.steps)
    after = beside_the_loss(out if isinstance(out, Mapping) else output) if loss else {}
    hook.after_loss = hook.after_loss or next((name for name, was in after.items() if loss.get(name) != was), None)
    hook.data_changed += any(is_data(tensor) for tensor in given.changed())
    if out is not None:
        hook.returned += 1
        hook.changed += 1
        if hook.kind == FORWARD[1]:
            hook.returns.look_at_output(out, output)
            if len(hook.timeline.parts) < 4 * SAMPLES and hook.fired <= 4 * SAMPLES:
                hook.timeline.parts += changed_part(hook.note_part, output, out)
            kept = any(one.shared for one in stored)
            hook.returns.stored_before += kept and not (memory_of(out) & memory_of(output))
        elif len(args) > 1:
            hook.returns.look_at_arguments(out, args[1], with_kwargs=hook.gets_kwargs)
    elif len(hook.kept) < SAMPLES:
        _follow(hook, args)
    _see_checkpoint(hook, out)


def _on_backward(hook: HookRecord, args: tuple[Any, ...], looking: bool) -> Observer:
    before, contents = Versions.of(args), _contents(hook, args)
    last = before.before[-1][0] if before.before else None
    if last is not None and last.requires_grad and len(hook.kept) < SAMPLES:
        hook.kept.append((hook.timeline.now(), weakref.ref(last)))
    out = yield from _call(hook)
    _note_stored(hook, contents, args)
    hook.in_place += bool(before.changed())
    given = args[1] if len(args) > 1 else None
    running = hook.timeline.running
    if (
        running is not None
        and running.mean
        and hook.samples_apart
        and (last := next(tensors(args[-1:]), None)) is not None
    ):
        hook.mean_over = hook.mean_over or (len(last) if last.dim() > 1 else 0)
    if hook.kind == BACKWARD[1] and isinstance(given, tuple):
        hook.without_input += bool(given) and all(g is None for g in given)
        hook.empty_inputs += not given
    if out is None:
        return
    hook.returned += 1
    hook.returns.look_at_graph(out, given)
    if isinstance(given, tuple) and len(_tuple(out)) != len(given):
        hook.returns.invalid = f"{len(_tuple(out))} gradients instead of {len(given)}"
    pair = next(
        (
            (a, b)
            for a, b in zip(_tuple(given), _tuple(out))
            if isinstance(a, Tensor) and isinstance(b, Tensor) and a is not b
        ),
        None,
    )
    hook.changed += pair is not None
    if pair is not None and looking and comparable(*pair):
        with torch.no_grad():
            hook.samples.append(FiringSample.at(*pair, hook.timeline))


def _on_other(hook: HookRecord, args: tuple[Any, ...]) -> Observer:
    """Observe a call of a hook on an optimizer, on a state dict or on several tensors."""
    if hook.kind in PREFIXED:
        hook.prefix = hook.prefix or next((one for one in args[1:3] if isinstance(one, str)), "")
    if hook.kind == MULTI and args and isinstance(args[0], list | tuple):
        hook.nones += any(grad is None for grad in args[0])
    given = Versions.of(args)
    keys = next((list(one) for one in args if isinstance(one, dict)), [])
    hook.names_keys |= any(text in key for text in hook.texts for key in keys if isinstance(key, str))
    out = yield from _call(hook)
    if hook.kind in SAVING and args and isinstance(args[0], nn.Module):
        weights = memory_of([*args[0].parameters(), *args[0].buffers()])
        hook.data_changed += bool(memory_of(given.changed()) & weights)
    if out is None:
        return
    hook.returned += 1
    on_module = hook.kind in STATE and args and not isinstance(args[0], torch.optim.Optimizer)
    ignored = hook.kind == MULTI or (on_module and (hook.kind != private.STATE_REGISTRARS[0] or hook.prefix))
    if ignored and not any(out is one for one in args) and not given.changed():
        hook.returns.look_at_ignored(out)


def _weights(hook: HookRecord, args: tuple[Any, ...]) -> list[tuple[Tensor, Tensor]]:
    """Return the parameters of the module of a pre-hook, each with a copy, for the first firings and some others."""
    sampled = hook.fired < SAMPLES or hook.fired & (hook.fired - 1) == 0
    if hook.kind != FORWARD[0] or not sampled or not args or not isinstance(args[0], nn.Module):
        return []
    own = [p for p in private.own_parameters(args[0]).values() if p is not None and is_plain(p)]
    return [(p, p.detach().clone()) for p in own]


def _detaches(stored: list[Stored], args: tuple[Any, ...]) -> bool:
    """Return True if a hook stored a tensor without a graph, although it received one with a graph."""
    bare = any(one.kind == "Tensor" and not one.graph for one in stored)
    return bare and torch.is_grad_enabled() and any(one.requires_grad for one in tensors(args[1:]))


def _contents(hook: HookRecord, args: tuple[Any, ...] = ()) -> list[Contents]:
    """Return what the containers of a hook contain before a call. The first argument may be the hooked module."""
    return snapshot(hook.fn(), next(iter(args), None)) if len(hook.stored) < VALUES else []


def _note_stored(hook: HookRecord, contents: list[Contents], args: tuple[Any, ...]) -> list[Stored]:
    """Record the values that a hook stored in a call."""
    training = bool(getattr(args[0], "training", True)) if args else True
    new = list(stored_since(contents, args, training=training, within=hook.timeline.current_pass))
    if any(one.slot.key is not None for one in new):
        outside = [value for _, value in reachable(hook.fn()) if isinstance(value, int | str)]
        for one in new:
            one.late_key = one.slot.key in outside
    for one in new:
        one.backwards = hook.timeline.backwards
    hook.stored += new
    hook.timeline.stored += new
    hook.adds_in = hook.adds_in or summed_in_half(contents)
    if any(one.infinite for one in new) and all(bool(t.isfinite().all()) for t in tensors(args) if is_plain(t)):
        hook.overflowed += 1
    return new


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
    recomputes = private.graph_task_id() != -1
    if isinstance(out, Tensor) and is_plain(out) and hook.fired <= 4 * SAMPLES:
        total = float(out.detach().double().sum())
        if recomputes:
            hook.recomputed_differently.append(total not in hook.sums)
        hook.sums.add(total)
    if recomputes:
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
    contents = _contents(hook)
    out = yield from _call(hook)
    _note_stored(hook, contents, args)
    now = private.version(given)
    with torch.no_grad():
        edited = copy is not None and was == now and not same(copy, given.detach())
    hook.in_place += was != now or edited
    if out is None and copy is not None and not bool(copy.isfinite().all()):
        hook.unguarded += not (was != now or edited)
    if isinstance(out, Tensor):
        hook.returned += 1
        if out is not given:
            hook.changed += 1
            hook.returns.look_at_graph(out, given)
            _note_names(hook)
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
    if hook.fired < SAMPLES and (fn := hook.fn()) is not None:
        hook.late.look(fn)
    outer, distribution.firing = distribution.firing, hook.label
    try:
        out = yield
    except FailedCallError as error:
        if (
            hook.kind not in FORWARD or private.graph_task_id() == -1
        ):  # a checkpoint stops its recomputation by an error
            hook.raised = str(error)
        raise
    finally:
        distribution.firing = outer
    hook.fired += 1
    hook.last = timeline.now()
    if hook.fired & (hook.fired - 1) == 0 or hook.fired % (4 * SAMPLES) == 0:
        for one in hook.variables:
            one.look()
    if hook.fired == 1:
        hook.firings.waiting.pop(hook.number, None)
    if hook.removed is not None:
        hook.late_firings += 1
    if hook.kind in (*FORWARD, *BACKWARD) and hook.fired & (hook.fired - 1) == 0:
        _look_at_model(hook)
    hook.scaled_by = timeline.scale
    if hook.owner.place is not None:
        hook.others_then = timeline.others[hook.owner.place.model]
    running = timeline.running  # read once: another thread may end its backward pass meanwhile
    if running is not None:
        number, count = hook.in_backward
        count = count + 1 if number == timeline.backwards else 1
        hook.in_backward = (timeline.backwards, count)
        hook.most_in_backward = max(hook.most_in_backward, count)
        hook.graphs.add(running.create_graph)
        if len(hook.backward_places) < SAMPLES:
            hook.backward_places.add(running.place)
    return out


def _follow(hook: HookRecord, args: tuple[Any, ...]) -> None:
    """Track the tensor that the hook received, to determine later whether the hook kept it alive."""
    shown = next((t for t in tensors(args[-1:]) if t.requires_grad and t.grad_fn is not None), None)
    if shown is not None and torch.is_grad_enabled():
        hook.kept.append((hook.timeline.now(), weakref.ref(shown)))


def _look_at_model(hook: HookRecord) -> None:
    """Record whether the hooked module is now inside a module that took its name, or inside another model."""
    place, running = hook.owner.place, hook.timeline.within
    root, module = (place.root(), place.module()) if place is not None else (None, None)
    if place is None or root is None or module is None:
        return
    present = dict(root.named_modules()).get(place.name)
    if present is not None and present is not module and any(one is module for one in present.modules()):
        hook.wrapped_by = type(present).__name__
    model = running.model() if running is not None else None
    if not isinstance(model, nn.Module) or is_of_a_trace(type(model)) or is_of_a_trace(type(root)):
        return
    if not _is_inside(root, model) and not _is_inside(model, root):
        hook.other_model = type(model).__name__


def _is_inside(part: nn.Module, model: nn.Module) -> bool:
    return any(one is part for one in model.modules())


def _note_names(hook: HookRecord) -> None:
    """Record the names of a parameter whose gradient the hook changes. A shared parameter has several."""
    place = hook.owner.place
    root = place.root() if place is not None and hook.owner.is_parameter and not hook.names else None
    if root is not None:
        hook.names = tuple(names_of(root, hook.owner.now()))


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
