"""Run a backward pass and optimizer steps, and restore everything that they changed, including version counters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from tenterhook import torch_internals as private
from tenterhook.rig import Rig
from tenterhook.rig.runtime.attached_hook import AttachedHook
from tenterhook.rig.runtime.status import HookEvent

#: attributes of a site that change when its hook fires
_COUNTERS = (
    "_due",
    "blocked",
    "changed",
    "dormant",
    "failed",
    "fired",
    "first",
    "installed",
    "last",
    "order",
    "rebound",
    "skipped",
)


@contextmanager
def rehearsal(rig: Rig, loss: Tensor, optimizers: Iterable[Optimizer]) -> Iterator[None]:
    """Restore the rig, the model, all gradients, the optimizers and the random state when the block ends."""
    model, optimizers = rig._current_model(), list(optimizers)
    stepped = [p for o in optimizers for group in o.param_groups for p in group["params"]]
    with ExitStack() as undo:
        undo.enter_context(torch.random.fork_rng())
        undo.enter_context(_rig(rig))
        undo.enter_context(_values(_unique(*model.parameters(), *model.buffers(), *stepped)))
        undo.enter_context(_gradients(_unique(*model.parameters(), *stepped, *_leaves(loss))))
        for optimizer in optimizers:
            undo.enter_context(_optimizer(optimizer))
        yield


def step(optimizer: Optimizer, look: Callable[[], None]) -> None:
    """Run one optimizer step, and call `look` after all other step pre-hooks."""
    handle = optimizer.register_step_pre_hook(lambda *_: look())
    try:
        optimizer.step()
    finally:
        handle.remove()


@contextmanager
def silenced(rig: Rig) -> Iterator[None]:
    """Disable all hooks of the rig while the block runs."""
    switched = [hook for hook in rig._installer.hooks.values() if not hook.status.is_muted]
    for hook in switched:
        hook.apply(HookEvent.MUTE)
    rig._apply_schedule()
    try:
        yield
    finally:
        for hook in switched:
            hook.apply(HookEvent.UNMUTE)
            rig._installer.environment.outdated.add(hook)
        rig._apply_schedule()


def _leaves(loss: Tensor) -> list[Tensor]:
    """Find every leaf in the loss's graph, because parameters of other models and inputs also receive gradients."""
    waiting = [loss.grad_fn]
    seen, found = {loss.grad_fn}, [loss] if loss.is_leaf else []
    while waiting:
        node = waiting.pop()
        leaf = private.accumulated_into(node) if node is not None else None
        found += [leaf] if leaf is not None else []
        nodes = {n for n, _ in node.next_functions} - seen if node is not None else set()
        seen |= nodes
        waiting += nodes
    return found


def _unique(*tensors: Tensor) -> list[Tensor]:
    return list({id(t): t for t in tensors}.values())


@contextmanager
def _rig(rig: Rig) -> Iterator[None]:
    environment, finalizer = rig._installer.environment, vars(rig._finalizer)
    objects = [vars(environment.clock), vars(environment.clock.passes), vars(environment.gradients), finalizer]
    then = [{**one} for one in objects]
    counts = list(environment.clock.passes.counts)
    recorder = vars(rig._recorder)
    hooks = [(hook, _hook(hook)) for hook in rig._installer.hooks.values()]
    recorded = dict(recorder)
    recorder.update({name: type(value)() for name, value in recorded.items() if name != "rank"})
    try:
        yield
    finally:
        for one, was in zip(objects, then, strict=True):
            one.update(was)
        environment.clock.passes.counts = counts
        recorder.update(recorded)
        for hook, kept in hooks:
            _put_back(hook, kept)
        rig._apply_schedule()


def _hook(hook: AttachedHook) -> dict[str, Any]:
    state, partials = hook.state, hook.partials
    tables: list[dict[Any, Tensor]] = [state.packed, state.pending, state.free, state.pending_free]
    tables += [partials.stores] if partials is not None else []
    return {
        "counts": (hook.due_steps, hook.counted, hook.sleepers.count),
        "sites": [[getattr(site, name) for name in _COUNTERS] for site in hook.sites],
        "skipped": [dict(site.skipped) if site.skipped else None for site in hook.sites],
        "tables": [(table, dict(table), {k: t.clone() for k, t in table.items()}) for table in tables],
        "generators": {key: g.get_state() for key, g in state.generators.items()},
        "fired": bytes(partials.fired) if partials is not None else b"",
    }


def _put_back(hook: AttachedHook, kept: dict[str, Any]) -> None:
    hook.due_steps, hook.counted, hook.sleepers.count = kept["counts"]
    hook.environment.outdated.add(hook)
    for site, values, skipped in zip(hook.sites, kept["sites"], kept["skipped"]):
        for name, value in zip(_COUNTERS, values, strict=True):
            setattr(site, name, value)
        site.skipped = skipped
    packed, pending, free, pending_free = kept["tables"][:4]
    state = hook.state
    # The end of a step replaces some of these dicts with new ones.
    state.packed, state.pending, state.free, state.pending_free = (t[0] for t in (packed, pending, free, pending_free))
    for table, tensors, values in kept["tables"]:
        table.clear()
        table.update(tensors)
        for key, tensor in tensors.items():
            tensor.copy_(values[key])
    for key in list(state.generators):
        if key in kept["generators"]:
            state.generators[key].set_state(kept["generators"][key])
        else:
            del state.generators[key]
    if hook.partials is not None:
        hook.partials.stores, hook.partials.fired = kept["tables"][-1][0], bytearray(kept["fired"])


@contextmanager
def _values(tensors: list[Tensor]) -> Iterator[None]:
    values = [t.detach().clone() for t in tensors]
    versions = private.versions(tensors)
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, values, strict=True):
                tensor.copy_(value)
        private.set_versions(tensors, versions)


@contextmanager
def _gradients(tensors: list[Tensor]) -> Iterator[None]:
    """Replace the gradients with copies while the block runs, and restore the originals when it ends."""
    grads = [t.grad for t in tensors]
    for tensor, grad in zip(tensors, grads, strict=True):
        tensor.grad = None if grad is None else grad.clone()
    try:
        yield
    finally:
        for tensor, grad in zip(tensors, grads, strict=True):
            tensor.grad = grad


@contextmanager
def _optimizer(optimizer: Optimizer) -> Iterator[None]:
    attributes = dict(vars(optimizer))
    state = {p: dict(kept) for p, kept in optimizer.state.items()}
    values = {
        p: {k: v.clone() if isinstance(v, Tensor) else copy.copy(v) for k, v in kept.items()}
        for p, kept in state.items()
    }
    groups = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    try:
        yield
    finally:
        optimizer.state.clear()
        for p, kept in state.items():
            for key, was in values[p].items():
                if isinstance(was, Tensor):
                    kept[key].copy_(was)
                else:
                    kept[key] = was
            optimizer.state[p] = kept
        for group, was in zip(optimizer.param_groups, groups, strict=True):
            for key in group.keys() - was.keys() - {"params"}:
                del group[key]
            group.update(was)
        vars(optimizer).clear()
        vars(optimizer).update(attributes)
