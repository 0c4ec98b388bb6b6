"""A registration with PyTorch for one target and point, installed and suspended as hooks are due."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torch import nn
from torch.utils.hooks import RemovableHandle

from tenterhook import torch_internals as private
from tenterhook.resolve.targets import Target
from tenterhook.rig.runtime.attached_hook import Site
from tenterhook.rig.runtime.status import RegistrationEvent, RegistrationStatus
from tenterhook.rig.runtime.step_clock import StepClock


def inert(*args: Any, **kwargs: Any) -> None:
    """Do nothing, in the place of a hook that is not due, and on copies of a model."""


if TYPE_CHECKING:
    _Partial = partial[Any]
else:
    _Partial = partial


class Dispatch(_Partial):
    """What PyTorch calls. A C-level call of its function; copies and pickles of it do nothing."""

    #: where it belongs among our own hooks of one dict
    place: tuple[int, int]

    def __copy__(self) -> Dispatch:
        return Dispatch(inert)

    def __deepcopy__(self, memo: object) -> Dispatch:
        return Dispatch(inert)

    def __reduce__(self) -> Any:
        return Dispatch, (inert,)


class Pinnable(Protocol):
    """What is registered on a module that compiled code may call."""

    def expect(self) -> None:
        """Stay registered from now on: compiled code calls the module."""


#: registrations that have come or gone, each with its module
Touched = list[tuple[Pinnable, nn.Module]]


class Serving(NamedTuple):
    """The sites that a registration serves."""

    #: those that fire
    active: tuple[Site, ...] = ()
    #: those, and the ones that a living graph may recompute with
    all: tuple[Site, ...] = ()


class Registration:
    """All sites of one rig at one target and point."""

    #: gradients are of what is returned in the end, so their registrations come after those that may change it
    stage = 0

    def __init__(self, target: Target, point: str, clock: StepClock, rig: int, touched: Touched) -> None:
        self.target = target
        self.point = point
        self.clock = clock
        #: where it is noted that this registration has come or gone
        self.touched = touched
        self.sites: list[Site] = []
        self.handle: RemovableHandle | None = None
        self.status = RegistrationStatus.ABSENT
        self.serving = Serving()
        self._place = (self.stage, rig)

    def refresh(self, kept: frozenset[Hashable] = frozenset()) -> None:
        """Bring the registration in line with which hooks are active; `kept` hooks are needed for recomputation."""
        active = tuple(s for s in self.sites if s.attached.active and s.dormant is None)
        everything = active
        if kept:
            everything = tuple(s for s in self.sites if s.attached in kept or (s.attached.active and s.dormant is None))
        if self.is_in_graph:
            self.expect()
        serving = Serving(active, everything)
        wanted = bool(everything) or self.status.stays
        if serving == self.serving and self.is_registered == wanted:
            return
        for site in self.serving.active:
            site.installed = False
        self.serving = serving
        if wanted:
            self.install()
        else:
            self.suspend()
        for site in active:
            site.installed = self.is_registered

    @property
    def is_registered(self) -> bool:
        """True if PyTorch has something of it."""
        return self.handle is not None

    @property
    def is_in_graph(self) -> bool:
        """True if compiled code was seen to call it."""
        return False

    def install(self) -> None:
        """Have PyTorch call the sites that are served now."""
        call = self._placed(self._dispatch())
        hooks = self._hooks() if self.handle is not None else None
        if self.handle is not None and hooks is not None and self.handle.id in hooks:
            hooks[self.handle.id] = call  # what is called changes, its place among the others does not
            self.apply(RegistrationEvent.INSTALL)
            return
        self.handle = self._register(call)
        self.apply(RegistrationEvent.INSTALL if self.handle is not None else RegistrationEvent.MOVE)
        self.touch()
        hooks = self._hooks()
        if self.handle is None or not hooks or private.is_only(hooks):
            return
        later = sorted((fn.place, key) for key, fn in hooks.items() if getattr(fn, "place", ()) > self._place)
        if later:  # rigs in the order they were attached, whichever was due first
            last = [key for _, key in later]
            private.put_in_order(hooks, [key for key in hooks if key not in last] + last)

    def suspend(self) -> None:
        """Have PyTorch call nothing, without changing the order of hooks that others registered later."""
        hooks = self._hooks()
        if self.handle is None or hooks is None or not private.is_before_others(hooks, self.handle.id):
            self.remove()
        else:
            hooks[self.handle.id] = self._placeholder()
            self.apply(RegistrationEvent.SUSPEND)

    def remove(self) -> None:
        """Have PyTorch forget it."""
        if self.handle is not None:
            self.handle.remove()
            self.handle = None
            self.touch()
        self.apply(RegistrationEvent.REMOVE)

    def move(self, target: Target) -> None:
        """Follow the name to another target; the next refresh registers there."""
        if self.target.owner() is not target.owner() or self.target.key != target.key:
            stays = self.status.stays
            self.remove()
            if stays:
                self.expect()
        self.target = target

    def expect(self) -> None:
        """Stay registered from now on: compiled code calls the module."""
        self.apply(RegistrationEvent.EXPECT)

    def apply(self, event: RegistrationEvent) -> None:
        """Go on to the status that follows an event."""
        self.status = self.status.after(event)

    def touch(self) -> None:
        """Note that it has come or gone: code that was compiled with other hooks is compiled again."""
        module = self.target.owner()
        if isinstance(module, nn.Module) and self.target.kind == "module":
            self.touched.append((self, module))

    def _placed(self, call: Any) -> Any:
        """Mark a function with its place among our own hooks."""
        call.place = self._place
        return call

    def _placeholder(self) -> Callable[..., Any]:
        """Return what keeps the place of a suspended registration."""
        call: Callable[..., Any] = self._placed(Dispatch(inert))
        return call

    def _hooks(self) -> dict[int, Any] | None:
        """Return PyTorch's dict that the registration is in."""
        raise NotImplementedError

    def _register(self, call: Callable[..., Any]) -> RemovableHandle | None:
        raise NotImplementedError

    def _dispatch(self) -> Callable[..., Any]:
        raise NotImplementedError
