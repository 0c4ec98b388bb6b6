"""Defines the base classes for registrations on modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from tenterhook import torch_internals as private
from tenterhook.rig.points.graph_entry import GradientCallback, ValueCallback
from tenterhook.rig.runtime.registration import Registration

SLOTS = ("_forward_pre_hooks", "_forward_hooks")


def remove_copies(module: nn.Module, slot: str, is_copy: Callable[[int, tuple[int, int]], bool]) -> None:
    """Remove functions of a rig that other code has copied from another module, as `torch.ao` does when it swaps them.

    `is_copy` receives the key and the place of each of tenterhook's functions.
    """
    for key, fn in list(private.hooks_in(module, slot).items()):
        place = getattr(fn, "place", None)
        if place is not None and is_copy(key, place):
            private.forget_hook(module, slot, key)


class ModuleRegistration(Registration):
    """Registers a forward hook or forward pre-hook on a module."""

    @property
    def _slot(self) -> str:
        return SLOTS[self.point not in ("input", "grad_input")]

    def _hooks(self) -> dict[int, Any] | None:
        return private.hooks_in(self.target.owner(), self._slot)

    def _register(self, call: Callable[..., Any]) -> RemovableHandle | None:
        module = self.target.owner()
        if not isinstance(module, nn.Module):
            return None
        remove_copies(module, self._slot, lambda key, place: place == self._place)
        if self.point in ("input", "grad_input"):
            return module.register_forward_pre_hook(call, with_kwargs=True)
        return module.register_forward_hook(call, with_kwargs=self.point == "grad_output")


class TracedRegistration(ModuleRegistration):
    """Registers a hook that compiled code calls through a `GraphCallback`."""

    _callback: ValueCallback | GradientCallback

    @property
    def is_in_graph(self) -> bool:
        return self._callback.used

    def install(self) -> None:
        self._callback.allow_for(self.sites)
        super().install()
