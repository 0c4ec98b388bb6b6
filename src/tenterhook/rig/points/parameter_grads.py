"""Implements the points `grad` and `grad_accumulated` with hooks on parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling
from torch.utils.hooks import RemovableHandle

from tenterhook import torch_internals as private
from tenterhook.resolve.targets import Target, is_sharded
from tenterhook.rig.compiled.graph_ops import EntryCallback, operations
from tenterhook.rig.points.calling import chain, make_fire
from tenterhook.rig.runtime.registration import Dispatch, Registration, Touched
from tenterhook.rig.runtime.step_clock import StepClock
from tenterhook.torch_internals import compiler as dynamo


def can_be_trained(parameter: Tensor) -> bool:
    return parameter.is_floating_point() or parameter.is_complex()


@contextmanager
def trained(parameter: Tensor) -> Iterator[None]:
    """Set `requires_grad` of a parameter inside the block.

    PyTorch refuses hooks on a frozen parameter, but keeps them when it is frozen later. So hooks are already there when
    the parameter is unfrozen, and tenterhook does not have to notice that moment.
    """
    frozen = not parameter.requires_grad
    if frozen:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        if frozen:
            parameter.requires_grad_(False)


class ParameterRegistration(Registration):
    """Registers hooks on the parameter with a given name.

    If a different tensor is assigned to that name, the hooks move to the new tensor.
    """

    def __init__(self, target: Target, point: str, clock: StepClock, rig: int, touched: Touched) -> None:
        super().__init__(target, point, clock, rig, touched)
        #: identity of the tensor that has the hook
        self._bound: tuple[int, int] | None = None
        #: handle of the hook on the previous tensor, which a graph may still use
        self._parting: RemovableHandle | None = None

    @property
    def _slot(self) -> str:
        return "_backward_hooks" if self.point == "grad" else "_post_accumulate_grad_hooks"

    def tensor(self) -> Tensor | None:
        """Return the tensor that autograd uses for this parameter."""
        return self.target.parameter()

    def _hooks(self) -> dict[int, Any] | None:
        parameter = self.tensor()
        return None if parameter is None else private.tensor_hooks(parameter, self._slot)

    def _dispatch(self) -> Callable[..., Any]:
        fire = chain([make_fire(s) for s in self.serving.active])
        if self.point == "grad" or not self.serving.active:
            return fire
        gradients = self.serving.active[0].attached.environment.gradients

        @dynamo.breaks_graph
        def dispatch(parameter: Tensor) -> None:
            if not parameter.requires_grad:
                return  # it was frozen after its use, so PyTorch calls its hooks, but accumulates nothing
            out = fire(parameter.grad)
            if out is not None:
                gradients.replacing(parameter)
                parameter.grad = out

        return dispatch

    def _placeholder(self) -> Callable[..., Any]:
        @dynamo.breaks_graph
        def kept(value: Any) -> None:
            return None

        placed: Callable[..., Any] = self._suspended(kept)
        return placed

    def _register(self, call: Callable[..., Any]) -> RemovableHandle | None:
        parameter = self.tensor()
        if parameter is None or not parameter.is_leaf or not can_be_trained(parameter):
            return None
        before = private.tensor_hooks(parameter, self._slot)
        if before is not None:
            # This tensor may have had another name, whose registration has left its function here for a live graph.
            for key in [key for key, fn in before.items() if getattr(fn, "place", None) == self._place]:
                del before[key]
        with trained(parameter):
            handle: RemovableHandle
            if self.point == "grad":
                handle = parameter.register_hook(call)
            else:
                handle = parameter.register_post_accumulate_grad_hook(call)
        if before is not None:
            private.reinstall_tensor_hooks(parameter)  # an earlier tensor swap may have left an unused dict
        self._bound = (id(parameter), private.implementation(parameter))
        return handle

    def remove(self) -> None:
        super().remove()
        if self._parting is not None:
            self._parting.remove()
            self._parting = None
        parameter = self.tensor()
        if parameter is not None:
            private.drop_empty_tensor_hooks(parameter)

    def rebind(self, parameter: Tensor) -> bool:
        """Move the hooks to the tensor that now has the parameter's name. Return True if that is another tensor."""
        hooks: dict[int, Any] = private.tensor_hooks(parameter, self._slot) or {}
        parting, self._parting = self._parting, None
        if parting is not None and parting.id in hooks:  # `functional_call` restored the previous tensor
            parting, self.handle = self.handle, parting
        if parting is not None:
            parting.remove()
        now = (id(parameter), private.implementation(parameter))
        listed = self.handle is not None and self.handle.id in hooks
        if listed and now == self._bound:
            return False
        if listed:
            private.reinstall_tensor_hooks(parameter)
            self._bound = now
        else:
            self._parting, self.handle = self.handle, None
            self.install()
        for site in self.serving.active:
            site.rebound += 1
        return True


class GatheredRegistration(ParameterRegistration):
    """Registers hooks on the tensor that FSDP2 gathers for a forward pass.

    The autograd graph contains the gathered tensor, not the shard. The gathered tensor is found when its module is
    called. It is the same object in every step.
    """

    def __init__(self, target: Target, point: str, clock: StepClock, rig: int, touched: Touched) -> None:
        super().__init__(target, point, clock, rig, touched)
        self._gathered: Tensor | None = None
        self._entry: RemovableHandle | None = None
        self._callback = EntryCallback(lambda: self._look(target.owner()))

    def tensor(self) -> Tensor | None:
        return self._gathered

    @property
    def is_registered(self) -> bool:
        return self._entry is not None

    def install(self) -> None:
        owner = self.target.owner()
        if self._entry is None and isinstance(owner, nn.Module):
            self._entry = owner.register_forward_pre_hook(Dispatch(self._entered))
            self.touched.append((self, owner))
        if self._gathered is not None:
            super().install()

    @dynamo.skip_dynamo
    def _entered(self, module: nn.Module, args: Any) -> None:
        if is_dynamo_compiling():
            operations.enter(self._callback.token)
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
        if self.serving.active:
            super().install()

    def rebind(self, parameter: Tensor) -> bool:
        """Do nothing. Between steps, the name refers to the shard. The next forward pass finds the gathered tensor."""
        return False

    def remove(self) -> None:
        super().remove()
        self._gathered = None
        if self._entry is not None:
            self._entry.remove()
            self._entry = None
