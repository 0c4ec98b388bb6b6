"""Registers tensor hooks on a call's inputs, outputs and taps, for the gradient points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from tenterhook import torch_internals as private
from tenterhook.errors import ContractError, RefusedError
from tenterhook.rig.points.calling import Fire, chain, make_fire
from tenterhook.rig.points.leaf_dispatcher import CallCounter, graph_task_id, may_keep
from tenterhook.rig.runtime.attached_hook import Site
from tenterhook.rig.runtime.step_clock import StepClock
from tenterhook.torch_internals import compiler as dynamo

NO_GRAD = "gradients were disabled in this call (inside a reentrant checkpoint, the hook fires in the recomputation)"
NOTHING_NEEDS_GRAD = "no tensor in this call requires a gradient"


class GradientHooks:
    """Creates one tensor hook for each leaf of each call. The tensor hook fires all given sites."""

    def __init__(self, sites: Sequence[Site], clock: StepClock) -> None:
        self.sites = sites
        self._fire = chain([make_fire(s, captured=True) for s in sites])
        self._calls = CallCounter(clock, sites)
        self._keeps = [s for s in sites if s.attached.definition.needs_value]
        self._may_keep = any(map(may_keep, sites))

    def safe_copy(self, grad: Tensor) -> Tensor:
        """Return a copy if an action might keep the gradient, because compiled code reuses the gradient's memory."""
        return grad.clone() if self._may_keep else grad

    def begin(self) -> int | None:
        """Begin a call and return its number.

        A reentrant checkpoint calls the module twice, first with gradients disabled. Only the first call is counted.
        """
        if not self._calls.contexts:
            return 0
        return self._calls.begin() if graph_task_id() == -1 else self._calls.recomputed()

    def on(self, tensor: Tensor, call: int | None, leaf: int) -> Fire:
        """Return the tensor hook for one leaf of a call."""
        if not self._calls.contexts:
            return self._fire
        keeps = self._keeps
        value, version = (tensor.detach(), private.read_version(tensor)) if keeps else (None, 0)

        @dynamo.breaks_graph
        def on_gradient(grad: Tensor | None) -> Tensor | None:
            for site in keeps:
                assert value is not None
                if private.read_version(value) != version:
                    site.attached.fail(site, _overwritten())
            return self.at(grad, call, leaf, value)

        return on_gradient

    def at(self, grad: Tensor | None, call: int | None, leaf: int, value: Tensor | None) -> Tensor | None:
        """Fire the hooks on the gradient of one leaf of a call."""
        self._calls.place(call, leaf)
        contexts = [site.ctx for site in self._keeps if site.ctx is not None]
        for ctx in contexts:
            ctx._value = value
        try:
            new: Tensor | None = self._fire(grad)
            return new
        finally:
            for ctx in contexts:
                ctx._value = None

    def hook(self, tensor: Tensor, fire: Fire, key: tuple[int, str]) -> None:
        """Hook the tensor itself. This is correct only if the call created the tensor and returned nothing else."""
        if private.view_base(tensor) is None:
            _register(tensor, fire, key)
        else:
            self._hook_with_base(tensor, tensor, fire, key)

    def alias(self, tensor: Tensor, fire: Fire, key: tuple[int, str]) -> Tensor:
        """Hook a view of the tensor and return the view. Only uses of the view contribute to the view's gradient.

        `key` identifies the place, for example a module and a point. If two rigs have hooks at the same place, the
        second rig hooks the first rig's view.
        """
        if getattr(tensor, "_tenterhook", None) == key:
            self._hook_with_base(tensor, tensor, fire, key)
            return tensor
        view: Any = tensor.view_as(tensor)
        view._tenterhook = key
        self._hook_with_base(view, tensor, fire, key)
        alias: Tensor = view
        return alias

    def _hook_with_base(self, hooked: Tensor, tensor: Tensor, fire: Fire, key: tuple[int, str]) -> None:
        """Hook a tensor and its base, because autograd drops the hooks of a view that is changed in place."""
        base = private.view_base(hooked)
        # A leaf tensor cannot be changed in place through a view. Inside torch.func, version counters cannot be stored.
        if base is None or base.grad_fn is None or private.is_functorch(tensor):
            _register(hooked, fire, key)
            return
        fired, counter = False, private.version_counter(tensor)
        version = private.read_version(counter)

        @dynamo.breaks_graph
        def on_view(grad: Tensor | None) -> Any:
            nonlocal fired
            fired = True
            return fire(grad)

        @dynamo.breaks_graph
        def on_base(grad: Tensor | None) -> None:
            if not fired and private.read_version(counter) != version:
                for site in self.sites:
                    if site.attached.active and not site.blocked:
                        site.attached.fail(site, _lost(site))

        _register(hooked, on_view, key)
        base.register_hook(on_base)


def _register(tensor: Tensor, fire: Any, key: tuple[int, str]) -> None:
    """Register a tensor hook. A module that returns the output of a module inside it is called later, so its hook is
    the first that the gradient reaches.
    """
    fire.key = key
    hooks = private.tensor_hooks(tensor, "_backward_hooks")
    handle = tensor.register_hook(fire)
    others = [] if not hooks else [one for one, fn in hooks.items() if getattr(fn, "key", key) != key]
    if hooks and others:
        keys = [one for one in hooks if one != handle.id]
        private.put_in_order(hooks, [*keys[: keys.index(others[0])], handle.id, *keys[keys.index(others[0]) :]])


def _lost(site: Site) -> RefusedError:
    module = site.point == "grad_input"
    who = "the module changes its own input in place" if module else "the tensor was changed in place later"
    return RefusedError(
        f"{who}, so the gradient is not available",
        remedy="avoid the in-place operation, for example with inplace=False"
        + (", or use grad_output of the previous module" if module else ""),
    )


def _overwritten() -> ContractError:
    return ContractError(
        "the value was changed in place after the hook was registered, so ctx.value no longer holds the original",
        remedy="do not change the tensor in place, or use an action that does not need ctx.value",
    )


def skip_call(sites: Sequence[Site], why: str) -> None:
    """Count a call as skipped, because none of its tensors can be hooked. A recomputation is not counted."""
    if graph_task_id() == -1:
        for site in sites:
            if site.attached.active:
                site.skip(why)
