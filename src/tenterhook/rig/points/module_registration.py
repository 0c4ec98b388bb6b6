"""Defines the base classes for registrations on modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from tenterhook import torch_internals as private
from tenterhook.rig.points.graph_entry import GradientCallback, ValueCallback
from tenterhook.rig.runtime.registration import Registration


class ModuleRegistration(Registration):
    """Registers a forward hook or forward pre-hook on a module."""

    def _hooks(self) -> dict[int, Any] | None:
        slot = "_forward_pre_hooks" if self.point in ("input", "grad_input") else "_forward_hooks"
        return private.hooks_in(self.target.owner(), slot)

    def _register(self, call: Callable[..., Any]) -> RemovableHandle | None:
        module = self.target.owner()
        if not isinstance(module, nn.Module):
            return None
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
