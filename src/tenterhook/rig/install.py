"""Install: the fixture for each point, on modules and their state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from tenterhook.rig import torch_private as private
from tenterhook.rig.clock import Clock
from tenterhook.rig.consumers import Consumers
from tenterhook.rig.fire import chain, make_call
from tenterhook.rig.fixture import Dispatch, Fixture, Touched
from tenterhook.rig.forward import ValueDoor, input_dispatch, output_dispatch
from tenterhook.rig.gradients import GradientDoor, grad_input_dispatch, grad_output_dispatch
from tenterhook.rig.names import Target, is_sharded
from tenterhook.rig.parameters import GatheredFixture, ParameterFixture


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


class ValueFixture(DoorFixture):
    """`input` and `output`."""

    def __init__(self, target: Target, point: str, clock: Clock, rig: int, touched: Touched) -> None:
        super().__init__(target, point, clock, rig, touched)
        self._door: ValueDoor = ValueDoor(clock)

    def _dispatch(self) -> Callable[..., Any]:
        build = input_dispatch if self.point == "input" else output_dispatch
        return Dispatch(build(self._active, self._serving, self.clock, self._door))


class GradOutputFixture(DoorFixture):
    stage = 1

    def __init__(self, target: Target, point: str, clock: Clock, rig: int, touched: Touched) -> None:
        super().__init__(target, point, clock, rig, touched)
        self._door: GradientDoor = GradientDoor(clock)

    def _dispatch(self) -> Callable[..., Any]:
        return Dispatch(grad_output_dispatch(self._active, self.clock, self._door))


class GradInputFixture(ModuleFixture):
    """By aliases of the inputs if a hook may change the gradient; if all only observe, beside the graph."""

    stage = 1

    def __init__(self, target: Target, point: str, clock: Clock, rig: int, touched: Touched) -> None:
        super().__init__(target, point, clock, rig, touched)
        self._after: RemovableHandle | None = None

    def _dispatch(self) -> Callable[..., Any]:
        self._leave_after()
        if any(s.live.definition.modifies for s in self._active):
            return Dispatch(grad_input_dispatch(self._active, self.clock))
        consumers = Consumers(self._active, self.clock)
        module = self.target.owner()
        if isinstance(module, nn.Module):
            self._after = module.register_forward_hook(Dispatch(consumers.after), with_kwargs=True, always_call=True)
        return Dispatch(consumers.before)

    def take_down(self) -> None:
        self._leave_after()
        super().take_down()

    def leave(self) -> None:
        self._leave_after()
        super().leave()

    def _leave_after(self) -> None:
        if self._after is not None:
            self._after.remove()
            self._after = None


class StateFixture(Fixture):
    """`save_pre`, `save_post`, `load_pre`, `load_post`, of modules and optimizers."""

    def _hooks(self) -> dict[int, Any] | None:
        return None

    def put_up(self) -> None:
        self.leave()
        self.handle = self._register(self._dispatch())

    def _dispatch(self) -> Callable[..., Any]:
        replaceable = isinstance(self.target.owner(), Optimizer) and self.point in ("save_post", "load_pre")
        return chain([make_call(s, may_return=replaceable) for s in self._active])

    def _register(self, call: Callable[..., Any]) -> RemovableHandle | None:
        owner = self.target.owner()
        if isinstance(owner, nn.Module):
            return _on_module_state(owner, self.point, call)
        return _on_optimizer_state(owner, self.point, call) if owner is not None else None


def _on_module_state(module: nn.Module, point: str, fire: Callable[[Any], Any]) -> RemovableHandle:
    if point == "save_pre":
        return module.register_state_dict_pre_hook(Dispatch(lambda m, prefix, keep_vars: fire(prefix)))  # type: ignore[no-any-return]
    if point == "save_post":
        return module.register_state_dict_post_hook(Dispatch(lambda m, sd, prefix, meta: fire(sd)))  # type: ignore[no-any-return]
    if point == "load_pre":
        return module.register_load_state_dict_pre_hook(Dispatch(lambda m, sd, *rest: fire(sd)))  # type: ignore[no-any-return]
    return module.register_load_state_dict_post_hook(Dispatch(lambda m, keys: fire(keys)))  # type: ignore[no-any-return]


def _on_optimizer_state(optimizer: Optimizer, point: str, fire: Callable[[Any], Any]) -> RemovableHandle:
    if point == "save_pre":
        return optimizer.register_state_dict_pre_hook(lambda o: fire(""))
    if point == "save_post":
        return optimizer.register_state_dict_post_hook(lambda o, sd: fire(sd))
    if point == "load_pre":
        return optimizer.register_load_state_dict_pre_hook(lambda o, sd: fire(sd))
    return optimizer.register_load_state_dict_post_hook(lambda o: fire(None))


_FIXTURES: dict[str, type[Fixture]] = {
    "input": ValueFixture,
    "output": ValueFixture,
    "grad_input": GradInputFixture,
    "grad_output": GradOutputFixture,
    "grad": ParameterFixture,
    "grad_accumulated": ParameterFixture,
}


def make_fixture(target: Target, point: str, clock: Clock, rig: int, touched: Touched, *, gathered: bool) -> Fixture:
    """`gathered`: FSDP2 puts its parameters together for a forward."""
    kind = _FIXTURES.get(point, StateFixture)
    if gathered and kind is ParameterFixture and is_sharded(target.parameter()):
        kind = GatheredFixture
    return kind(target, point, clock, rig, touched)
