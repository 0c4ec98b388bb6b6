"""Registers the hooks at one target and point with PyTorch while at least one of them is due."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torch import nn
from torch.utils.hooks import RemovableHandle

from tenterhook import torch_internals as private
from tenterhook.resolve.dormancy import GONE
from tenterhook.resolve.targets import Target
from tenterhook.rig.runtime.attached_hook import Site
from tenterhook.rig.runtime.status import RegistrationEvent, RegistrationStatus
from tenterhook.rig.runtime.step_clock import StepClock


def inert(*args: Any, **kwargs: Any) -> None:
    """Do nothing. This function replaces a hook that is not due, and all hooks on a copy of the model."""


#: default of the last argument of a hook that takes keyword arguments. If a hook is removed while PyTorch goes through
#: the hooks of a call, PyTorch still calls it, but does not know any more that it takes keyword arguments.
REMOVED: Any = object()


if TYPE_CHECKING:
    _Partial = partial[Any]
else:
    _Partial = partial


class Dispatch(_Partial):
    """Wraps the function that PyTorch calls.

    As a subclass of `partial`, it calls the function from C, without an extra Python frame. A copied or unpickled
    `Dispatch` does nothing when called.
    """

    #: key that sorts tenterhook's own hooks within a PyTorch hook dict
    place: tuple[int, int]

    def __copy__(self) -> Dispatch:
        return Dispatch(inert)

    def __deepcopy__(self, memo: object) -> Dispatch:
        return Dispatch(inert)

    def __reduce__(self) -> Any:
        return Dispatch, (inert,)


class Pinnable(Protocol):
    """Describes an object that is registered on a module, and that compiled code may need permanently."""

    def expect(self) -> None:
        """Stay registered from now on, because compiled code calls the module."""


#: registrations that were added or removed, each with its module
Touched = list[tuple[Pinnable, nn.Module]]


class Serving(NamedTuple):
    """Lists the sites that a registration calls."""

    #: sites that fire
    active: tuple[Site, ...] = ()
    #: sites that fire, and sites that a recomputation may still need
    all: tuple[Site, ...] = ()


class Registration:
    """Registers all sites of one rig at one target and point, with a single PyTorch hook."""

    #: order among a module's hooks; value hooks (0) may replace the value, so gradient hooks (1) run after them
    stage = 0

    def __init__(self, target: Target, point: str, clock: StepClock, rig: int, touched: Touched) -> None:
        self.target = target
        self.point = point
        self.clock = clock
        #: collects the registrations that were added or removed
        self.touched = touched
        self.sites: list[Site] = []
        self.handle: RemovableHandle | None = None
        self.status = RegistrationStatus.ABSENT
        self.serving = Serving()
        self._place = (self.stage, rig)

    def refresh(self, kept: frozenset[Hashable] = frozenset()) -> None:
        """Install, update or suspend the registration to match the hooks that are active now.

        `kept` contains hooks that a recomputation may still need.
        """
        active = tuple(s for s in self.sites if s.attached.active and not s.blocked)
        everything = active
        if kept:
            stays = [s for s in self.sites if s.attached in kept and (s.dormant != GONE or self._is_still_on(s.target))]
            everything = tuple(s for s in self.sites if s in stays or (s.attached.active and not s.blocked))
        if self.is_in_graph:
            self.expect()
        serving = Serving(active, everything)
        wanted = bool(everything) or (self.status.stays and not self.is_gone)
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

    def _is_still_on(self, target: Target) -> bool:
        """Return True if the registration is installed on a target that has lost its name.

        The target is not registered again: it may have another name, with hooks of its own. And if another module got
        the name, the registration has moved to that module.
        """
        return self.is_registered and self.target.owner() is target.owner()

    @property
    def is_gone(self) -> bool:
        """Return True if the model no longer has a target with this name. The module may have another name now."""
        return bool(self.sites) and all(site.dormant == GONE for site in self.sites)

    @property
    def is_registered(self) -> bool:
        """Return True if this registration is installed in PyTorch."""
        return self.handle is not None

    @property
    def is_in_graph(self) -> bool:
        """Return True if compiled code has called this registration."""
        return False

    def install(self) -> None:
        """Register the sites in `serving` with PyTorch."""
        call = self._placed(self._dispatch())
        hooks = self._hooks() if self.handle is not None else None
        if self.handle is not None and hooks is not None and self.handle.id in hooks:
            hooks[self.handle.id] = call  # replace the function, but keep its place in the order
            self.apply(RegistrationEvent.INSTALL)
            return
        self.handle = self._register(call)
        self.apply(RegistrationEvent.INSTALL if self.handle is not None else RegistrationEvent.MOVE)
        self.touch()
        hooks = self._hooks()
        if self.handle is None or not hooks or private.is_only(hooks):
            return
        later = sorted((fn.place, key) for key, fn in hooks.items() if getattr(fn, "place", ()) > self._place)
        if later:  # keep rigs in the order in which they were attached
            last = [key for _, key in later]
            private.put_in_order(hooks, [key for key in hooks if key not in last] + last)

    def suspend(self) -> None:
        """Stop calling the sites. If other hooks were registered later, leave a placeholder to preserve the order."""
        hooks = self._hooks()
        if self.handle is None or hooks is None or not private.is_before_others(hooks, self.handle.id):
            self.remove()
        else:
            hooks[self.handle.id] = self._placeholder()
            self.apply(RegistrationEvent.SUSPEND)

    def remove(self) -> None:
        """Remove the registration from PyTorch."""
        if self.handle is not None:
            self.handle.remove()
            self.handle = None
            self.touch()
        self.apply(RegistrationEvent.REMOVE)

    def move(self, target: Target) -> None:
        """Switch to the object that now has the target's name. The next `refresh` registers the hooks on it."""
        if self.target.owner() is not target.owner() or self.target.key != target.key:
            stays = self.status.stays
            self.remove()
            if stays:
                self.expect()
        self.target = target

    def expect(self) -> None:
        """Stay registered from now on, because compiled code calls the module."""
        self.apply(RegistrationEvent.EXPECT)

    def apply(self, event: RegistrationEvent) -> None:
        """Update the status after an event."""
        self.status = self.status.after(event)

    def touch(self) -> None:
        """Record that this registration was added or removed, so that affected graphs are compiled again."""
        module = self.target.owner()
        if isinstance(module, nn.Module) and self.target.kind == "module":
            self.touched.append((self, module))

    def _placed(self, call: Any) -> Any:
        """Set the key that sorts a function among tenterhook's own hooks, and return the function."""
        call.place = self._place
        return call

    def _placeholder(self) -> Callable[..., Any]:
        """Return an inert function that holds the place of a suspended registration."""
        call: Callable[..., Any] = self._suspended(Dispatch(inert))
        return call

    def _suspended(self, call: Any) -> Any:
        """Mark a function that only holds the place of a suspended registration."""
        call.suspended = True
        return self._placed(call)

    def _hooks(self) -> dict[int, Any] | None:
        """Return the PyTorch hook dict that contains this registration."""
        raise NotImplementedError

    def _register(self, call: Callable[..., Any]) -> RemovableHandle | None:
        raise NotImplementedError

    def _dispatch(self) -> Callable[..., Any]:
        raise NotImplementedError
