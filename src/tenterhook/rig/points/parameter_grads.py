"""Fixtures on parameters: `grad` and `grad_accumulated`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling
from torch.utils.hooks import RemovableHandle

from tenterhook import torch_internals as private
from tenterhook.resolve.targets import Target, is_sharded
from tenterhook.rig.compiled.graph_ops import CallDoor, operations
from tenterhook.rig.points.calling import chain, make_fire
from tenterhook.rig.runtime.registration import Dispatch, Fixture, Touched
from tenterhook.rig.runtime.step_clock import Clock
from tenterhook.torch_internals import compiler as dynamo


class ParameterFixture(Fixture):
    """`grad` and `grad_accumulated`: bound to the tensor that stands at the name, bound anew when that changes."""

    def __init__(self, target: Target, point: str, clock: Clock, rig: int, touched: Touched) -> None:
        super().__init__(target, point, clock, rig, touched)
        self._slot = "_backward_hooks" if point == "grad" else "_post_accumulate_grad_hooks"
        self._bound: tuple[int, int] | None = None
        #: the registration on the tensor before, which a graph may still reach
        self._parting: RemovableHandle | None = None

    def tensor(self) -> Tensor | None:
        """What takes part in the graph."""
        return self.target.parameter()

    def _hooks(self) -> dict[int, Any] | None:
        parameter = self.tensor()
        return None if parameter is None else private.tensor_hooks(parameter, self._slot)

    def _dispatch(self) -> Callable[..., Any]:
        fire = chain([make_fire(s) for s in self._active])
        if self.point == "grad":
            return fire

        @dynamo.breaks_graph
        def dispatch(parameter: Tensor) -> None:
            out = fire(parameter.grad)
            if out is not None:
                parameter.grad = out

        return dispatch

    def _placeholder(self) -> Callable[..., Any]:
        @dynamo.breaks_graph
        def kept(value: Any) -> None:
            return None

        kept.place = self._place  # type: ignore[attr-defined]
        return kept

    def _register(self, call: Callable[..., Any]) -> RemovableHandle | None:
        parameter = self.tensor()
        if parameter is None or not parameter.requires_grad or not parameter.is_leaf:
            return None
        before = private.tensor_hooks(parameter, self._slot)
        handle: RemovableHandle
        if self.point == "grad":
            handle = parameter.register_hook(call)
        else:
            handle = parameter.register_post_accumulate_grad_hook(call)
        if before is not None:
            private.reinstall_tensor_hooks(parameter)  # a swap before us may have left a dead dict
        self._bound = (id(parameter), private.implementation(parameter))
        return handle

    def leave(self) -> None:
        super().leave()
        if self._parting is not None:
            self._parting.remove()
            self._parting = None
        parameter = self.tensor()
        if parameter is not None:
            private.drop_empty_tensor_hooks(parameter)

    def rebind(self, parameter: Tensor) -> None:
        """Follow the name to the tensor that stands there now."""
        hooks: dict[int, Any] = private.tensor_hooks(parameter, self._slot) or {}
        parting, self._parting = self._parting, None
        if parting is not None and parting.id in hooks:  # the tensor before is back: functional_call had lent another
            parting, self.handle = self.handle, parting
        if parting is not None:
            parting.remove()
        now = (id(parameter), private.implementation(parameter))
        listed = self.handle is not None and self.handle.id in hooks
        if listed and now == self._bound:
            return
        if listed:
            private.reinstall_tensor_hooks(parameter)
            self._bound = now
        else:
            self._parting, self.handle = self.handle, None
            self.put_up()
        for site in self._active:
            site.rebound += 1


class GatheredFixture(ParameterFixture):
    """Under FSDP2: the graph has the tensor that is put together for a forward. It is found when its module is called,
    and is the same one in every step."""

    def __init__(self, target: Target, point: str, clock: Clock, rig: int, touched: Touched) -> None:
        super().__init__(target, point, clock, rig, touched)
        self._gathered: Tensor | None = None
        self._entry: RemovableHandle | None = None
        self._door = CallDoor(lambda: self._look(target.owner()))

    def tensor(self) -> Tensor | None:
        return self._gathered

    @property
    def stands(self) -> bool:
        return self._entry is not None

    def put_up(self) -> None:
        owner = self.target.owner()
        if self._entry is None and isinstance(owner, nn.Module):
            self._entry = owner.register_forward_pre_hook(Dispatch(self._entered))
            self.touched.append((self, owner))
        if self._gathered is not None:
            super().put_up()

    @dynamo.skip_dynamo
    def _entered(self, module: nn.Module, args: Any) -> None:
        if is_dynamo_compiling():
            operations.enter(self._door.token)
        else:
            self._look(module)

    def _look(self, module: object) -> None:
        found = private.own_parameters(module).get(self.target.key) if isinstance(module, nn.Module) else None
        if found is None or is_sharded(found) or found is self._gathered:
            return
        if self.handle is not None:
            self.handle.remove()
            self.handle = None
        self._gathered = found
        if self._active:
            super().put_up()

    def rebind(self, parameter: Tensor) -> None:
        """What stands at the name between steps is another tensor; this one is found in the forward."""

    def leave(self) -> None:
        super().leave()
        self._gathered = None
        if self._entry is not None:
            self._entry.remove()
            self._entry = None
