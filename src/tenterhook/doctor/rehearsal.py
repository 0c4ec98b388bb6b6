"""A rehearsal: a backward and steps that leave everything as it was, versions included."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from tenterhook import torch_internals as private
from tenterhook.rig.runtime.attached_hook import LiveHook

if TYPE_CHECKING:
    from tenterhook.rig.rig import Rig

#: of a site, what firing changes
_COUNTERS = (
    "_due_before", "_due_since", "bound", "changed", "dormant", "failed", "fired", "first", "installed", "last",
    "order", "rebound", "skipped",
)  # fmt: skip


@contextmanager
def rehearsal(rig: Rig, loss: Tensor, optimizers: Iterable[Optimizer]) -> Iterator[None]:
    model, optimizers = rig._attached_model(), list(optimizers)
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
    """One step, and a look at the gradients it is taken with: after all that is done to them before it."""
    handle = optimizer.register_step_pre_hook(lambda *_: look())
    try:
        optimizer.step()
    finally:
        handle.remove()


@contextmanager
def silenced(rig: Rig) -> Iterator[None]:
    """Every hook of the rig is muted, and none forgets that it was not."""
    lives = list(rig._rigging.lives.values())
    muted = [live.muted for live in lives]
    for live in lives:
        live.muted = True
    rig._arm()
    try:
        yield
    finally:
        for live, was in zip(lives, muted, strict=True):
            live.muted, live.standing = was, None
        rig._arm()


def _leaves(loss: Tensor) -> list[Tensor]:
    """What else gets a gradient: inputs, and parameters of other models."""
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
    lives = list(rig._rigging.lives.values())
    clock, recorder = vars(rig._clock), vars(rig._recorder)
    hooks = [(live, _hook(live)) for live in lives]
    then, recorded = {**clock, "forwards": list(clock["forwards"])}, dict(recorder)
    task = rig._backward_task
    recorder.update({name: type(value)() for name, value in recorded.items() if name != "rank"})
    try:
        yield
    finally:
        clock.update(then)
        recorder.update(recorded)
        rig._backward_task = task
        for live, kept in hooks:
            _put_back(live, kept)
        rig._arm()


def _hook(live: LiveHook) -> dict[str, Any]:
    state, partials = live.state, live.partials
    tables: list[dict[Any, Tensor]] = [state.packed, state.pending, state.free, state.pending_free]
    tables += [partials.stores] if partials is not None else []
    return {
        "counts": (live.due_steps, live.counted, live.muted),
        "sites": [[getattr(site, name) for name in _COUNTERS] for site in live.sites],
        "skipped": [dict(site.skipped) if site.skipped else None for site in live.sites],
        "tables": [(table, dict(table), {k: t.clone() for k, t in table.items()}) for table in tables],
        "generators": {key: g.get_state() for key, g in state.generators.items()},
        "fired": bytes(partials.fired) if partials is not None else b"",
    }


def _put_back(live: LiveHook, kept: dict[str, Any]) -> None:
    live.due_steps, live.counted, live.muted = kept["counts"]
    live.standing = None
    for site, values, skipped in zip(live.sites, kept["sites"], kept["skipped"]):
        for name, value in zip(_COUNTERS, values, strict=True):
            setattr(site, name, value)
        site.skipped = skipped
    packed, pending, free, pending_free = kept["tables"][:4]
    state = live.state
    # A step's end puts other dicts in place of some of these.
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
    if live.partials is not None:
        live.partials.stores, live.partials.fired = kept["tables"][-1][0], bytearray(kept["fired"])


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
    """What has accumulated so far is added to, but not changed."""
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
    values = {p: {k: v.clone() if isinstance(v, Tensor) else copy.copy(v) for k, v in kept.items()}
              for p, kept in state.items()}  # fmt: skip
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
