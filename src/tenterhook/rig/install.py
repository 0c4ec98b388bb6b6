"""Fixtures: one registration with PyTorch for each target and point, put up and taken down as hooks are due."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from tenterhook.rig import torch_private as private
from tenterhook.rig.clock import Clock
from tenterhook.rig.fire import chain, make_call, make_fire
from tenterhook.rig.forward import grad_input_dispatch, grad_output_dispatch, input_dispatch, output_dispatch
from tenterhook.rig.ledger import Site
from tenterhook.rig.live import LiveHook
from tenterhook.rig.names import Target


def inert(*args: Any, **kwargs: Any) -> None:
    """What a copy of a model carries in place of our hooks."""


class Dispatch(partial):  # type: ignore[type-arg]
    """What PyTorch calls. A C-level call of its function; copies and pickles of it do nothing."""

    def __copy__(self) -> Dispatch:
        return Dispatch(inert)

    def __deepcopy__(self, memo: object) -> Dispatch:
        return Dispatch(inert)

    def __reduce__(self) -> Any:
        return Dispatch, (inert,)


class Fixture:
    """All sites of one rig at one target and point."""

    def __init__(self, target: Target, point: str, clock: Clock) -> None:
        self.target = target
        self.point = point
        self.clock = clock
        self.sites: list[Site] = []
        self.handle: RemovableHandle | None = None
        #: the fixture that must stay behind this one in PyTorch's order
        self.behind: Fixture | None = None
        self._serving: tuple[Site, ...] = ()
        self._active: tuple[Site, ...] = ()

    def refresh(self, replayable: frozenset[LiveHook] = frozenset()) -> None:
        """Bring the registration in line with which hooks are due. `replayable` are kept for recomputation."""
        active = tuple(s for s in self.sites if s.live.active and s.dormant is None)
        serving = active
        if replayable:
            serving = tuple(s for s in self.sites if s.dormant is None and (s.live.active or s.live in replayable))
        if serving == self._serving and active == self._active and (self.handle is not None) == bool(serving):
            return
        for site in self._active:
            site.installed = False
        self._serving, self._active = serving, active
        if not serving:
            self.take_down()
        elif self.handle is not None and self._swap(Dispatch(self._dispatch(active, serving))):
            pass
        else:
            self.put_up()
        for site in active:
            site.installed = True

    def put_up(self) -> None:
        raise NotImplementedError

    def take_down(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        """Take it down for good."""
        self.take_down()

    def _dispatch(self, active: Sequence[Site], serving: Sequence[Site]) -> Callable[..., Any]:
        raise NotImplementedError

    def _swap(self, dispatch: Dispatch) -> bool:
        """Change what is called without losing the place in the order."""
        return False


_MODULE: dict[str, tuple[str, Callable[..., Any]]] = {
    "input": ("_forward_pre_hooks", input_dispatch),
    "grad_input": ("_forward_pre_hooks", grad_input_dispatch),
    "output": ("_forward_hooks", output_dispatch),
    "grad_output": ("_forward_hooks", grad_output_dispatch),
}


class ModuleFixture(Fixture):
    """`input`, `output` and their gradients."""

    def _dispatch(self, active: Sequence[Site], serving: Sequence[Site]) -> Callable[..., Any]:
        build = _MODULE[self.point][1]
        if self.point in ("input", "output"):
            return build(active, serving, self.clock)  # type: ignore[no-any-return]
        return build(active, self.clock)  # type: ignore[no-any-return]

    def put_up(self) -> None:
        module = self.target.owner()
        if module is None:
            return
        assert isinstance(module, nn.Module)
        dispatch = Dispatch(self._dispatch(self._active, self._serving))
        if self.point in ("input", "grad_input"):
            self.handle = module.register_forward_pre_hook(dispatch, with_kwargs=True)
        else:
            self.handle = module.register_forward_hook(dispatch, with_kwargs=self.point == "grad_output")
        behind = self.behind
        if behind is not None and behind.handle is not None:
            behind.handle.remove()
            behind.put_up()

    def _swap(self, dispatch: Dispatch) -> bool:
        hooks = private.hooks_in(self.target.owner(), _MODULE[self.point][0])
        if self.handle is None or self.handle.id not in hooks:
            return False
        hooks[self.handle.id] = dispatch
        return True

    def take_down(self) -> None:
        if self.handle is None:
            return
        hooks = private.hooks_in(self.target.owner(), _MODULE[self.point][0])
        if private.is_last(hooks, self.handle.id):
            self.leave()
        elif self.handle.id in hooks:
            hooks[self.handle.id] = Dispatch(inert)  # others came after: coming back must not change their order

    def leave(self) -> None:
        if self.handle is not None:
            self.handle.remove()
            self.handle = None


class ParameterFixture(Fixture):
    """`grad` and `grad_accumulated`: bound to the tensor that stands at the name, bound anew when that changes."""

    def __init__(self, target: Target, point: str, clock: Clock) -> None:
        super().__init__(target, point, clock)
        self.bound: tuple[int, int] | None = None

    def _dispatch(self, active: Sequence[Site], serving: Sequence[Site]) -> Callable[..., Any]:
        fire = chain([make_fire(s) for s in active])
        if self.point == "grad":
            return fire

        def dispatch(parameter: Tensor) -> None:
            out = fire(parameter.grad)
            if out is not None:
                parameter.grad = out

        return dispatch

    def put_up(self) -> None:
        parameter = self.target.parameter()
        if self.handle is not None:
            self.handle.remove()
            self.handle = None
        if parameter is None or not parameter.requires_grad:
            return
        dispatch = self._dispatch(self._active, self._serving)
        listed = (
            private.tensor_hooks(parameter, "_backward_hooks"),
            private.tensor_hooks(parameter, "_post_accumulate_grad_hooks"),
        )
        if self.point == "grad":
            self.handle = parameter.register_hook(dispatch)
        else:
            self.handle = parameter.register_post_accumulate_grad_hook(dispatch)
        if any(hooks is not None for hooks in listed):
            private.reinstall_tensor_hooks(parameter)  # a swap before us may have left a dead dict
        self.bound = (id(parameter), private.implementation(parameter))

    def take_down(self) -> None:
        if self.handle is None:
            return
        self.handle.remove()
        self.handle = None
        parameter = self.target.parameter()
        if parameter is not None:
            private.drop_empty_tensor_hooks(parameter)

    def rebind(self) -> bool:
        """Whether another tensor had come to stand at the name; then the hooks are on it now."""
        parameter = self.target.parameter()
        if self.handle is None or parameter is None:
            return False
        now = (id(parameter), private.implementation(parameter))
        if now == self.bound and self._listed(parameter):
            return False
        if self.bound is not None and now[0] == self.bound[0] and self._listed(parameter):
            private.reinstall_tensor_hooks(parameter)
            self.bound = now
        else:
            self.put_up()
        for site in self.sites:
            site.rebound += 1
        return True

    def _listed(self, parameter: Tensor) -> bool:
        slot = "_backward_hooks" if self.point == "grad" else "_post_accumulate_grad_hooks"
        hooks = private.tensor_hooks(parameter, slot)
        return self.handle is not None and hooks is not None and self.handle.id in hooks


class StateFixture(Fixture):
    """`save_pre`, `save_post`, `load_pre`, `load_post`, of modules and optimizers."""

    def put_up(self) -> None:
        if self.handle is not None:
            self.handle.remove()
        owner = self.target.owner()
        optimizer = isinstance(owner, Optimizer)
        fire = chain([make_call(s, may_return=optimizer and self.point in ("save_post", "load_pre"))
                      for s in self._active])  # fmt: skip
        if isinstance(owner, nn.Module):
            self.handle = _module_state_hook(owner, self.point, fire)
        elif isinstance(owner, Optimizer):
            self.handle = _optimizer_state_hook(owner, self.point, fire)

    def take_down(self) -> None:
        if self.handle is not None:
            self.handle.remove()
            self.handle = None


def _module_state_hook(module: nn.Module, point: str, fire: Callable[[Any], Any]) -> RemovableHandle:
    if point == "save_pre":
        return module.register_state_dict_pre_hook(Dispatch(lambda m, prefix, keep_vars: fire(prefix)))  # type: ignore[no-any-return]
    if point == "save_post":
        return module.register_state_dict_post_hook(Dispatch(lambda m, sd, prefix, meta: fire(sd)))  # type: ignore[no-any-return]
    if point == "load_pre":
        return module.register_load_state_dict_pre_hook(Dispatch(lambda m, sd, *rest: fire(sd)))  # type: ignore[no-any-return]
    return module.register_load_state_dict_post_hook(Dispatch(lambda m, keys: fire(keys)))  # type: ignore[no-any-return]


def _optimizer_state_hook(optimizer: Optimizer, point: str, fire: Callable[[Any], Any]) -> RemovableHandle:
    if point == "save_pre":
        return optimizer.register_state_dict_pre_hook(lambda o: fire(""))
    if point == "save_post":
        return optimizer.register_state_dict_post_hook(lambda o, sd: fire(sd))
    if point == "load_pre":
        return optimizer.register_load_state_dict_pre_hook(lambda o, sd: fire(sd))
    return optimizer.register_load_state_dict_post_hook(lambda o: fire(None))


def make_fixture(target: Target, point: str, clock: Clock) -> Fixture:
    if point in _MODULE:
        return ModuleFixture(target, point, clock)
    if point in ("grad", "grad_accumulated"):
        return ParameterFixture(target, point, clock)
    return StateFixture(target, point, clock)
