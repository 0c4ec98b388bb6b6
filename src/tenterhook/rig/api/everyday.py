"""Define the one-line functions `hook`, `watch` and `detach`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from torch import Tensor, nn

from tenterhook.actions import DEFAULT, Context, Registry, stats
from tenterhook.errors import RefusedError, ResolveError
from tenterhook.plan import POINTS, Action, Hook, Plan, PointName, When, callable_name
from tenterhook.record import Sinks
from tenterhook.resolve.grouping import Group
from tenterhook.resolve.refusals import check_action
from tenterhook.resolve.resolution import ResolvedHook, find_action
from tenterhook.resolve.targets import Optimizers, Target
from tenterhook.rig.api.attach import attach, check_module
from tenterhook.rig.points.calling import Fire, make_fire
from tenterhook.rig.rig import Rig, rigs_on
from tenterhook.rig.root_hooks import remove_inert_hooks
from tenterhook.rig.runtime.attached_hook import AttachedHook, Site
from tenterhook.rig.runtime.environment import Environment
from tenterhook.rig.runtime.status import HookEvent
from tenterhook.switch import is_off


class Handle:
    """A handle of a hook that was registered with `hook`. It counts how often the hook fires, and can remove the hook.

    As a context manager, a handle removes the hook at the end of the block.

    Args:
        sites: The hook's sites.
        remove: Function that removes the hook.
        rig: The hook's rig, or None for a hook on a tensor.

    Attributes:
        rig (Rig | None): The hook's rig, or None for a hook on a tensor.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> x = torch.ones(2, requires_grad=True)
        >>> with th.hook(x, lambda grad: 2 * grad) as handle:
        ...     x.sum().backward()
        >>> handle.fired, handle.changed, x.grad
        (1, 1, tensor([2., 2.]))
    """

    def __init__(self, sites: list[Site], remove: Callable[[], None], rig: Rig | None = None) -> None:
        self._sites = sites
        self._remove = remove
        self.rig = rig

    @property
    def fired(self) -> int:
        """Return how often the hook fired, summed over all targets."""
        return sum(site.fired for site in self._sites)

    @property
    def changed(self) -> int:
        """Return how often the hook returned a different value, summed over all targets."""
        return sum(site.changed for site in self._sites)

    def remove(self) -> None:
        """Remove the hook. A second call does nothing."""
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
    on: str | Sequence[str] | None = None,
    at: PointName | None = None,
    optimizer: Optimizers = None,
    when: When | None = None,
    id: str | None = None,
    expect: int | None = None,
    tensors: Mapping[str, Tensor] | None = None,
    actions: Registry = DEFAULT,
) -> Handle:
    """Register one hook on a tensor or on a model.

    On a tensor, the hook receives the tensor's gradient, as with `tensor.register_hook`. On a model, the hook can fire
    at any point. By default, it fires at the model's output.

    Args:
        where: A model, or a tensor that requires a gradient.
        do: An action, or a function of the value. If the function returns a tensor, that tensor replaces the value.
        on: Names or patterns of the targets. The default is the model itself. Models only.
        at: The point at which the hook fires. The default is `"output"`. Models only.
        optimizer: The optimizer or optimizers that train the model. Models only.
        when: The steps in which the hook is due. The default is every step. Models only.
        id: Id of the hook. The default is derived from the name of the action. Models only.
        expect: Number of targets that `on` must match. Models only.
        tensors: Tensor parameters of the action, by name.
        actions: The registry in which a named action is looked up.

    Returns:
        A handle that counts how often the hook fires, and can remove the hook.

    Raises:
        RefusedError: The tensor or the point cannot be hooked in this way.
        ResolveError: The hook does not fit the model.
        ActionError: The action is unknown or its parameters are invalid.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Linear(2, 1)
        >>> with th.hook(model, lambda y: torch.zeros_like(y)) as handle:
        ...     model(torch.ones(1, 2)).item()
        0.0
        >>> handle.changed
        1
    """
    if not isinstance(where, Tensor | nn.Module):
        raise RefusedError(
            f"an object of type {type(where).__name__} cannot be hooked",
            remedy="pass a tensor or a module first: th.hook(y, fn)",
        )
    if not isinstance(do, Action) and not callable(do):
        raise RefusedError(
            f"the second argument is an object of type {type(do).__name__}, not an action",
            remedy="pass a function fn(value), or an action such as th.stats()",
        )
    if isinstance(where, Tensor):
        options = {"on": on, "at": at, "optimizer": optimizer, "when": when, "id": id, "expect": expect}
        given = [name for name, value in options.items() if value is not None]
        if given:
            raise RefusedError(
                f"a hook on a tensor does not accept {', '.join(given)}; it receives the gradient of the tensor",
                remedy=f"remove {', '.join(f'{name}=' for name in given)}, or name the tensor with th.tap and attach "
                "a plan",
            )
        return _hook_tensor(where, do, tensors or {}, actions)
    if on is None:
        if at in POINTS and "module" not in POINTS[at].on:
            raise RefusedError("the targets are missing", point=at, remedy='pass on="...", or on="**" for all targets')
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
            "the tensor does not require a gradient, so it never receives one",
            hook=one.doing,
            point="value_grad",
            remedy="call requires_grad_() on the tensor before you use it",
        )
    definition, params = find_action(one, actions, tensors)
    check_action(one, definition, params)
    if not definition.modifies and (definition.two_phase or definition.name == "capture"):
        raise RefusedError(
            "this action records values, but a hook on a tensor has no rig to read them from",
            hook=one.doing,
            point="value_grad",
            remedy="pass a function of the gradient, or name the tensor with th.tap and attach a plan to the model",
        )
    target = Target("tensor", "tap", weakref.ref(_nowhere))
    resolved = ResolvedHook(one, definition, params, (target,), {}, "any", "raise")
    attached = AttachedHook(resolved, Environment.for_model(_nowhere, {}))
    attached.apply(HookEvent.DUE)
    site = attached.sites[0]
    fire = make_fire(site)
    if site.ctx is not None:
        fire = _with_value(site.ctx, tensor.detach(), fire)
    if is_off():
        return Handle([site], lambda: None)
    registered = tensor.register_hook(fire)
    site.installed = True
    return Handle([site], registered.remove)


def _with_value(ctx: Context, value: Tensor, fire: Fire) -> Fire:
    """Set `ctx.value` only while the function runs, so that the handle does not keep the value alive."""

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
    group: Group | None = None,
) -> Rig:
    """Attach a default plan that measures gradients in every step, and outputs and updates in one step in ten.

    Args:
        model: The model.
        optimizer: The optimizer or optimizers that train the model. Without an optimizer, updates are not measured, and
            gradients are measured at the point `grad_accumulated`.
        every: Interval in steps. Gradients are measured once every `every` steps, and outputs and updates once every
            `10 * every` steps.
        sinks: Sinks for the recorded values, as in `attach`.
        replace: If True, replace hooks on the model that have the same ids.
        group: The ranks that train the model, as in `attach`.

    Returns:
        A rig with the hooks `grads` and `outputs`, and `updates` if an optimizer is given.

    Raises:
        ResolveError: The plan does not fit the model.
        AttachedError: The model already has a hook with one of these ids, and `replace` is False.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Linear(2, 1)
        >>> rig = th.watch(model)
        >>> model(torch.tensor([[3.0, 4.0]])).sum().backward()
        >>> rig.values("grads")["weight"]["norm"]
        5.0
    """
    seldom = When(every=10 * every)
    hooks = [Hook("outputs", on=(".", "**"), at="output", do=stats(), when=seldom)]
    if optimizer is None:
        hooks.insert(0, Hook("grads", on="**", at="grad_accumulated", do=stats(), when=When(every=every)))
    else:
        hooks.insert(0, Hook("grads", on="**", at="grad_final", do=stats(), when=When(every=every)))
        hooks.append(Hook("updates", on="**", at="update", do=stats(), when=seldom))
    return attach(model, Plan(hooks), optimizer=optimizer, sinks=sinks, replace=replace, group=group)


def detach(model: nn.Module) -> int:
    """Detach every rig from a model.

    If the model is a copy of an attached model, also remove the inert hooks that the copy contains.

    Args:
        model: The model.

    Returns:
        The number of rigs that were detached.

    Raises:
        ResolveError: `model` is not a module.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Linear(2, 1)
        >>> rig = th.watch(model)
        >>> th.detach(model)
        1
    """
    if isinstance(model, Rig):
        raise ResolveError("th.detach received a rig, not a model", remedy="write rig.detach(), or th.detach(model)")
    check_module(model, "th.detach(model)")
    rigs = rigs_on(model)
    for rig in rigs:
        rig.detach()
    remove_inert_hooks(model)
    return len(rigs)
