"""Implements taps. A tap names a tensor in a forward pass, so that hooks can reach tensors that no module returns."""

from __future__ import annotations

import weakref

from torch import Tensor, nn

from tenterhook.resolve.targets import Target, walk
from tenterhook.rig.points.gradient_hooks import GradientHooks
from tenterhook.rig.points.leaf_dispatcher import LeafDispatcher, graph_task_id, is_grad_enabled
from tenterhook.rig.runtime.attached_hook import AttachedHook, Site
from tenterhook.rig.runtime.step_clock import StepClock
from tenterhook.torch_internals import compiler as dynamo

#: the `Taps` object of each rig that has hooks on taps
_tables: list[Taps] = []


def tap(tensor: Tensor, name: str, *, within: nn.Module | None = None) -> Tensor:
    """Give a tensor a name, so that hooks at `value` and `value_grad` can reach it.

    Use the returned tensor in place of `tensor`. If no rig has hooks on taps, the call costs almost nothing.

    Args:
        tensor: The tensor to name.
        name: Name of the tap within its module.
        within: The module that the tap belongs to, usually `self`. A tap named `probs` in the module `blocks.3` is the
            target `blocks.3:probs`. Without `within`, the tap belongs to the model whose forward pass is running, and
            is the target `:probs`.

    Returns:
        `tensor` itself, or the tensor that a hook at `value` returned. If a hook at `value_grad` is active, the result
        is an alias of that tensor.

    Raises:
        HookError: The action of a hook on this tap raised an error.
        ContractError: The action changed the tensor in place, or returned a value that cannot replace the tensor.
        RefusedError: A checkpoint recomputes the tap, but the hooks on the tap, or their state, have changed since the
            forward pass.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> class Attention(torch.nn.Module):
        ...     def forward(self, x):
        ...         probs = th.tap(x.softmax(dim=-1), "probs", within=self)
        ...         return probs @ x
        >>> model = Attention()
        >>> rig = th.attach(model, th.Plan([th.Hook("p", on=":probs", at="value", do=th.scale(2.0))]))
        >>> model(torch.eye(2)).sum()
        tensor(4.)
    """
    return _through(tensor, name, within) if _tables else tensor


@dynamo.breaks_graph
def _through(tensor: Tensor, name: str, within: nn.Module | None) -> Tensor:
    for table in tuple(_tables):
        tensor = table.pass_through(tensor, name, within)
    return tensor


class Taps:
    """Finds a rig's taps when they run, and stores them by module and name."""

    def __init__(self, root: nn.Module, clock: StepClock) -> None:
        # A `Taps` object left in `_tables` would cause graph breaks in all other models that have taps.
        self._root = weakref.ref(root, lambda _: self.set_hooks([]))
        self._clock = clock
        self._hooks: list[AttachedHook] = []
        self._active: list[AttachedHook] = []
        #: the hooks on each tap, by module, then by name; a tap without a module is stored under the root
        self._found: weakref.WeakKeyDictionary[nn.Module, dict[str, TapHooks | None]] = weakref.WeakKeyDictionary()
        #: the names of the taps that ran, in their order
        self._names: dict[str, None] = {}
        #: the first name of each module, or None if the names must be read again
        self._paths: weakref.WeakKeyDictionary[nn.Module, str] | None = None

    def forget_paths(self) -> None:
        """Match all taps again, because the structure of the model has changed."""
        self._found.clear()
        self._names.clear()
        self._paths = None

    def set_hooks(self, hooks: list[AttachedHook]) -> None:
        """Select the hooks on taps, in plan order. If the selection has changed, match all taps again."""
        hooks = [attached for attached in hooks if attached.on_taps]
        active, before = [attached for attached in hooks if attached.active], self._active
        self._active = active
        if hooks == self._hooks:
            for found in self._tapped() if active != before else ():
                found.refresh()
            return
        self._hooks = hooks
        self._found.clear()
        if self._hooks and self not in _tables:
            _tables.append(self)
        elif not self._hooks and self in _tables:
            _tables.remove(self)

    def pass_through(self, tensor: Tensor, name: str, within: nn.Module | None) -> Tensor:
        """Fire the hooks on a tap, and return the tensor that the model continues with."""
        module = within
        if module is None:
            # A tap without a module belongs to the model whose forward pass is running or being recomputed.
            task = graph_task_id()
            passes = self._clock.passes
            mine = passes.under_way if task == -1 else passes.task == task
            module = self._root() if mine else None
            if module is None:
                if task == -1:
                    self._missed(f":{name}")
                return tensor
        known = self._found.setdefault(module, {})
        key = name if within is not None else f":{name}"
        if key not in known:
            known[key] = self._resolved(name, within)
        tapped = known[key]
        return tensor if tapped is None else tapped(tensor)

    def _missed(self, full: str) -> None:
        for attached in self._active:
            if _selects(attached, full):
                known = next((s for s in attached.sites if s.name == full), None)
                site = known or attached.add_site(Target(full, "tap", self._root))
                site.skip("the tap ran outside this model's forward pass (set within=model to bind it to the model)")

    def names(self) -> list[str]:
        """Return the names of the taps that ran."""
        return list(self._names)

    def _tapped(self) -> list[TapHooks]:
        return [f for by_name in self._found.values() for f in by_name.values() if f is not None]

    def _resolved(self, name: str, within: nn.Module | None) -> TapHooks | None:
        root = self._root()
        if root is None:
            return None
        full = f":{name}"
        if within is not None:
            if self._paths is None or within not in self._paths:  # the module may have been added since
                self._paths = weakref.WeakKeyDictionary()
                for known_as, module in walk(root):
                    self._paths.setdefault(module, known_as)
            path = self._paths.get(within)
            if path is None:
                return None
            full = f"{path}:{name}".removeprefix(".")
        self._names[full] = None
        target = Target(full, "tap", weakref.ref(within or root))
        sites = []
        for attached in self._hooks:
            if _selects(attached, full):
                known = next((s for s in attached.sites if s.name == full), None)
                sites.append(known or attached.add_site(target))
        return TapHooks(sites, self._clock) if sites else None


def _selects(attached: AttachedHook, tap: str) -> bool:
    """Return True if a hook selects a tap. A tap of the root may also be written without the colon."""
    selector = attached.hook.selector
    return selector.matches(tap) or (tap.startswith(":") and selector.matches(tap[1:]))


class TapHooks:
    """Fires the hooks of one rig on one tap."""

    def __init__(self, sites: list[Site], clock: StepClock) -> None:
        self._sites = sites
        self._clock = clock
        self.refresh()

    def refresh(self) -> None:
        """Use the hooks that are active now."""
        active = [s for s in self._sites if s.attached.active]
        for site in self._sites:
            site.installed = site in active
        values = [s for s in active if s.point == "value"]
        grads = [s for s in active if s.point == "value_grad"]
        self._dispatcher = LeafDispatcher(values, [s for s in self._sites if s.point == "value"], self._clock)
        self._gradient = GradientHooks(grads, self._clock) if grads else None

    def __call__(self, tensor: Tensor) -> Tensor:
        dispatcher = self._dispatcher
        recomputing = graph_task_id() != -1
        fire = dispatcher.recompute() if recomputing else dispatcher.always or dispatcher.begin()
        new = fire(tensor) if fire is not None else None
        if new is not None:
            tensor = new
            if not recomputing:
                dispatcher.changed(new)
        if self._gradient is not None and tensor.requires_grad and is_grad_enabled():
            hooks = self._gradient
            return hooks.alias(tensor, hooks.on(tensor, hooks.begin(), 0), (id(self), "value_grad"))
        return tensor
