"""Registrations on a module's call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from tenterhook import torch_internals as private
from tenterhook.rig.points.graph_entry import GradientDoor, ValueDoor
from tenterhook.rig.runtime.registration import Fixture


class ModuleFixture(Fixture):
    """The points on a module's call."""

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


class DoorFixture(ModuleFixture):
    """Those of them that compiled code has doors for."""

    _door: ValueDoor | GradientDoor

    @property
    def is_in_graph(self) -> bool:
        return self._door.used

    def put_up(self) -> None:
        self._door.make_room(self.sites)
        super().put_up()
