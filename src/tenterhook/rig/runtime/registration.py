"""A fixture: one registration with PyTorch for a target and point, put up and taken down as hooks are due."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from torch import nn
from torch.utils.hooks import RemovableHandle

from tenterhook import torch_internals as private
from tenterhook.resolve.targets import Target
from tenterhook.rig.runtime.attached_hook import LiveHook, Site
from tenterhook.rig.runtime.step_clock import Clock


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
