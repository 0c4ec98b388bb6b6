"""Fixtures: one registration with PyTorch for each target and point, put up and taken down as hooks are due."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from tenterhook.rig import dynamo_private as dynamo
from tenterhook.rig import torch_private as private
from tenterhook.rig.clock import Clock
from tenterhook.rig.consumers import Consumers
from tenterhook.rig.doors import CallDoor, operations
from tenterhook.rig.fire import chain, make_call, make_fire
from tenterhook.rig.forward import ValueDoor, input_dispatch, output_dispatch
from tenterhook.rig.gradients import GradientDoor, grad_input_dispatch, grad_output_dispatch
from tenterhook.rig.ledger import Site
from tenterhook.rig.live import LiveHook
from tenterhook.rig.names import Target, is_sharded


def inert(*args: Any, **kwargs: Any) -> None:
    """What a copy of a model carries in place of our hooks, and what keeps the place of one that is not due."""


class Dispatch(partial):  # type: ignore[type-arg]
    """What PyTorch calls. A C-level call of its function; copies and pickles of it do nothing."""

    def __copy__(self) -> Dispatch:
        return Dispatch(inert)

    def __deepcopy__(self, memo: object) -> Dispatch:
        return Dispatch(inert)

    def __reduce__(self) -> Any:
        return Dispatch, (inert,)


class Standing(Protocol):
    """What is put up on a module."""

    #: compiled code has a door here, so that it stays up whether something is due or not
    stays: bool


#: whose registration has come or gone, and the module
Touched = list[tuple[Standing, nn.Module]]


class Fixture:
    """All sites of one rig at one target and point."""

    #: gradients are of what is returned in the end, so their fixtures come after those that may change it
    stage = 0

    def __init__(self, target: Target, point: str, clock: Clock, rig: int, touched: Touched) -> None:
        self.target = target
        self.point = point
        self.clock = clock
        #: those whose registration has come or gone since it was last looked at
        self.touched = touched
        self.sites: list[Site] = []
        self.handle: RemovableHandle | None = None
        self.stays = False
        self._place = (self.stage, rig)
        self._serving: tuple[Site, ...] = ()
        self._active: tuple[Site, ...] = ()

    def refresh(self, replayable: frozenset[LiveHook] = frozenset()) -> None:
        """Bring the registration in line with which hooks are due. `replayable` are kept for recomputation."""
        active = tuple(s for s in self.sites if s.live.active and s.dormant is None)
        serving = active
        if replayable:
            serving = tuple(s for s in self.sites if s.live in replayable or (s.live.active and s.dormant is None))
        self.stays = self.stays or self.is_in_graph
        wanted = bool(serving) or self.stays
        if serving == self._serving and active == self._active and self.stands == wanted:
            return
        for site in self._active:
            site.installed = False
        self._serving, self._active = serving, active
        if wanted:
            self.put_up()
        else:
            self.take_down()
        for site in active:
            site.installed = self.stands

    @property
    def stands(self) -> bool:
        """Whether PyTorch will call it."""
        return self.handle is not None

    @property
    def is_in_graph(self) -> bool:
        """Whether compiled code was seen to call it."""
        return False

    @property
    def wanted(self) -> bool:
        return bool(self._active)

    def put_up(self) -> None:
        call = self._dispatch()
        call.place = self._place  # type: ignore[attr-defined]
        hooks = self._hooks() if self.handle is not None else None
        if self.handle is not None and hooks is not None and self.handle.id in hooks:
            hooks[self.handle.id] = call  # what is called changes, its place among the others does not
            return
        self.handle = self._register(call)
        self.touch()
        hooks = self._hooks()
        if self.handle is None or not hooks or private.is_only(hooks):
            return
        later = sorted((fn.place, key) for key, fn in hooks.items() if getattr(fn, "place", ()) > self._place)
        if later:  # rigs in the order they were attached, whichever was due first
            last = [key for _, key in later]
            private.put_in_order(hooks, [key for key in hooks if key not in last] + last)

    def take_down(self) -> None:
        hooks = self._hooks()
        if self.handle is None or hooks is None or not private.is_before_others(hooks, self.handle.id):
            self.leave()
        else:
            hooks[self.handle.id] = self._placeholder()

    def leave(self) -> None:
        """Take it down for good."""
        if self.handle is not None:
            self.handle.remove()
            self.handle = None
            self.touch()

    def touch(self) -> None:
        module = self.target.owner()
        if isinstance(module, nn.Module) and self.target.kind == "module":
            self.touched.append((self, module))

    def _placeholder(self) -> Callable[..., Any]:
        """Others came after: coming back must not change their order."""
        kept = Dispatch(inert)
        kept.place = self._place  # type: ignore[attr-defined]
        return kept

    def _hooks(self) -> dict[int, Any] | None:
        """PyTorch's dict that the registration is in."""
        raise NotImplementedError

    def _register(self, call: Callable[..., Any]) -> RemovableHandle | None:
        raise NotImplementedError

    def _dispatch(self) -> Callable[..., Any]:
        raise NotImplementedError


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

    @dynamo.as_it_is
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
