"""Implements the points `save_pre`, `save_post`, `load_pre` and `load_post` for modules and optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from tenterhook.rig.points.calling import chain, make_call
from tenterhook.rig.runtime.registration import Dispatch, Registration
from tenterhook.rig.runtime.status import RegistrationEvent


class StateDictRegistration(Registration):
    """Registers hooks that run when a `state_dict` is saved or loaded."""

    def _hooks(self) -> dict[int, Any] | None:
        return None

    def install(self) -> None:
        self.remove()
        self.handle = self._register(self._dispatch())
        if self.handle is not None:
            self.apply(RegistrationEvent.INSTALL)

    def _dispatch(self) -> Callable[..., Any]:
        replaceable = isinstance(self.target.owner(), Optimizer) and self.point in ("save_post", "load_pre")
        return chain([make_call(s, may_return=replaceable) for s in self.serving.active])

    def _register(self, call: Callable[..., Any]) -> RemovableHandle | None:
        owner = self.target.owner()
        if isinstance(owner, nn.Module):
            return _on_module_state(owner, self.point, call)
        return _on_optimizer_state(owner, self.point, call) if owner is not None else None


def _on_module_state(module: nn.Module, point: str, fire: Callable[[Any], Any]) -> RemovableHandle:
    handle: RemovableHandle
    if point == "save_pre":
        handle = module.register_state_dict_pre_hook(Dispatch(lambda m, prefix, keep_vars: fire(prefix)))
    elif point == "save_post":
        handle = module.register_state_dict_post_hook(Dispatch(lambda m, sd, prefix, meta: fire(sd)))
    elif point == "load_pre":
        handle = module.register_load_state_dict_pre_hook(Dispatch(lambda m, sd, *rest: fire(sd)))
    else:
        handle = module.register_load_state_dict_post_hook(Dispatch(lambda m, keys: fire(keys)))
    return handle


def _on_optimizer_state(optimizer: Optimizer, point: str, fire: Callable[[Any], Any]) -> RemovableHandle:
    if point == "save_pre":
        return optimizer.register_state_dict_pre_hook(lambda o: fire(""))
    if point == "save_post":
        return optimizer.register_state_dict_post_hook(lambda o, sd: fire(sd))
    if point == "load_pre":
        return optimizer.register_load_state_dict_pre_hook(lambda o, sd: fire(sd))
    return optimizer.register_load_state_dict_post_hook(lambda o: fire(None))
