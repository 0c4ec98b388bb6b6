"""The everyday surface: one line each."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from torch import Tensor, nn

from tenterhook.actions import DEFAULT, Context, Registry, spike, stats, watch_nonfinite
from tenterhook.errors import RefusedError
from tenterhook.plan import POINTS, Action, Hook, Plan, When, callable_name
from tenterhook.record import Flight, Sinks
from tenterhook.resolve.refusals import check_action
from tenterhook.resolve.resolution import ResolvedHook, find_action
from tenterhook.resolve.targets import Optimizers, Target
from tenterhook.rig.api.attach import attach
from tenterhook.rig.api.nonfinite import _in_place
from tenterhook.rig.points.calling import Fire, make_fire
from tenterhook.rig.rig import Rig, rigs_on
from tenterhook.rig.root_hooks import remove_inert_hooks
from tenterhook.rig.runtime.attached_hook import AttachedHook, Site
from tenterhook.rig.runtime.environment import Environment
from tenterhook.rig.runtime.status import HookEvent


class Handle:
    """What `hook` returns: `remove()` takes the hook off; as a context manager, at the end of the block."""

    def __init__(self, sites: list[Site], remove: Callable[[], None], rig: Rig | None = None) -> None:
        self._sites = sites
        self._remove = remove
        self.rig = rig

    @property
    def fired(self) -> int:
        return sum(site.fired for site in self._sites)

    @property
    def changed(self) -> int:
        return sum(site.changed for site in self._sites)

    def remove(self) -> None:
        self._remove()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.remove()

    def __repr__(self) -> str:
        where = ", ".join(dict.fromkeys(f"{s.hook} at {s.point}" for s in self._sites))
        return f"<handle: {where}, fired {self.fired}, changed {self.changed}>"


def hook(
    where: Tensor | nn.Module,
    do: Action | Callable[..., Any],
    *,
    on: str | tuple[str, ...] | None = None,
    at: str | None = None,
    optimizer: Optimizers = None,
    when: When | None = None,
    id: str | None = None,
    expect: int | None = None,
    tensors: Mapping[str, Tensor] | None = None,
    actions: Registry = DEFAULT,
) -> Handle:
    """Hook a live tensor's gradient, or any point of a model: by default the output of the root."""
    if not isinstance(where, Tensor | nn.Module):
        raise RefusedError(
            f"a {type(where).__name__} cannot be hooked", remedy="give a tensor or a module first: th.hook(y, fn)"
        )
    if isinstance(where, Tensor):
        options = {"on": on, "at": at, "optimizer": optimizer, "when": when, "id": id, "expect": expect}
        given = [name for name, value in options.items() if value is not None]
        if given:
            raise RefusedError(
                f"a tensor has no {', '.join(given)}", remedy="name the tensor with th.tap, and attach to the model"
            )
        return _hook_tensor(where, do, tensors or {}, actions)
    if on is None:
        if at is not None and "module" not in POINTS[at].on:
            raise RefusedError("which targets is not said", point=at, remedy='give on="...", or on="**" for all')
        on = "."
    one = Hook(id or _fresh_id(where, do), on=on, at=at or "output", do=do, when=when or When(), expect=expect)
    rig = attach(where, Plan([one]), optimizer=optimizer, tensors=tensors, actions=actions)
    return Handle(rig._attached_hook(one.id).sites, rig.detach, rig)


def _fresh_id(model: nn.Module, do: Action | Callable[..., Any]) -> str:
    bare = do.name if isinstance(do, Action) else getattr(do, "name", None) or callable_name(do).rpartition(".")[2]
    name = "".join(c if c.isalnum() or c == "_" else "" for c in bare)[:40] or "hook"
    taken = {id for rig in rigs_on(model) for id in rig.ledger}
    return next(id for n in range(len(taken) + 1) if (id := name if not n else f"{name}#{n + 1}") not in taken)


def _hook_tensor(
    tensor: Tensor, do: Action | Callable[..., Any], tensors: Mapping[str, Tensor], actions: Registry
) -> Handle:
    one = Hook("hook", on=".", at="value_grad", do=do)
    if not tensor.requires_grad:
        raise RefusedError(
            "the tensor does not require a gradient, so it never gets one",
            hook=one.doing,
            point="value_grad",
            remedy="call requires_grad_() on it before it is used",
        )
    definition, params = find_action(one, actions, tensors)
    check_action(one, definition, params)
    if not definition.modifies and (definition.two_phase or definition.name == "capture"):
        raise RefusedError(
            "it records, and a bare tensor has no rig to read from",
            hook=one.doing,
            point="value_grad",
            remedy="give a function of the gradient, or name the tensor with th.tap and attach to the model",
        )
    target = Target("tensor", "tap", weakref.ref(_nowhere))
    resolved = ResolvedHook(one, definition, params, (target,), {}, "any", "raise")
    attached = AttachedHook(resolved, Environment.for_model(_nowhere, {}))
    attached.apply(HookEvent.DUE)
    site = attached.sites[0]
    fire = make_fire(site)
    if site.ctx is not None:
        fire = _with_value(site.ctx, tensor.detach(), fire)
    registered = tensor.register_hook(fire)
    site.installed = True
    return Handle([site], registered.remove)


def _with_value(ctx: Context, value: Tensor, fire: Fire) -> Fire:
    """The graph holds the value, not the handle."""

    def on_gradient(grad: Tensor | None) -> Any:
        ctx._value = value
        try:
            return fire(grad)
        finally:
            ctx._value = None

    return on_gradient


_nowhere = nn.Module()


def watch(
    model: nn.Module,
    optimizer: Optimizers = None,
    *,
    every: int = 1,
    sinks: Sinks = (),
    replace: bool = False,
) -> Rig:
    """Attach the default plan: statistics of gradients each step, of outputs and updates in one step of ten."""
    seldom = When(every=10 * every)
    hooks = [Hook("outputs", on=(".", "**"), at="output", do=stats(), when=seldom)]
    if optimizer is None:
        hooks.insert(0, Hook("grads", on="**", at="grad_accumulated", do=stats(), when=When(every=every)))
    else:
        hooks.insert(0, Hook("grads", on="**", at="grad_final", do=stats(), when=When(every=every)))
        hooks.append(Hook("updates", on="**", at="update", do=stats(), when=seldom))
    return attach(model, Plan(hooks), optimizer=optimizer, sinks=sinks, replace=replace)


def flight(
    model: nn.Module, optimizer: Optimizers, path: str | os.PathLike[str], *, steps: int = 64, replace: bool = False
) -> Rig:
    """Keep fine statistics of the last steps in memory; written under `path`, with suspects, when something goes wrong.

    It trips where a gradient is not finite or its norm leaps, on an error within `with rig:`, and on SIGTERM.
    """
    everything = (".", "**")
    hooks = [
        Hook("outputs", on=everything, at="output", do=stats()),
        Hook("grad_outputs", on=everything, at="grad_output", do=stats()),
        Hook("grad_inputs", on=(*everything, *_in_place(model)), at="grad_input", do=stats()),
        Hook("grads", on="**", at="grad_final", do=stats()),
        Hook("updates", on="**", at="update", do=stats()),
        Hook("nonfinite", on="**", at="grad_final", do=watch_nonfinite()),
        Hook("leap", on="**", at="grad_final", do=spike(z=8.0, floor=0.1)),
    ]
    return attach(model, Plan(hooks), optimizer=optimizer, sinks=Flight(path, steps=steps), replace=replace)


def detach(model: nn.Module) -> int:
    """Take every rig off the model, and what a copy carries of one; returns how many rigs there were."""
    rigs = rigs_on(model)
    for rig in rigs:
        rig.detach()
    remove_inert_hooks(model)
    return len(rigs)
