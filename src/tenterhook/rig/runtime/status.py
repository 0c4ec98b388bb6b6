"""Defines the statuses of hooks and registrations, and all transitions between the statuses."""

from __future__ import annotations

from enum import Enum, auto


class HookEvent(Enum):
    """Lists the events that change the status of a hook."""

    #: the schedule selects this step, or does not select it
    DUE = auto()
    NOT_DUE = auto()
    #: the user switches the hook off, or on again
    MUTE = auto()
    UNMUTE = auto()
    #: the hook is removed from the plan
    RETIRE = auto()
    #: the forward pass in which the hook had to stay active has ended, or the rig is detached
    STOP = auto()


class HookStatus(Enum):
    """Lists the statuses of a hook."""

    #: attached, but not due in this step
    IDLE = auto()
    #: due in this step, so the hook fires
    ACTIVE = auto()
    #: switched off
    MUTED = auto()
    #: switched off during a forward pass that the hook modifies; the hook fires until that pass ends
    MUTING = auto()
    #: removed during a forward pass that the hook modifies; the hook fires until that pass ends
    RETIRING = auto()
    #: removed; a recomputation may still need the hook
    RETIRED = auto()

    @property
    def acts(self) -> bool:
        """Return True if the hook fires in this status."""
        return self in _ACTING

    @property
    def is_muted(self) -> bool:
        return self in _SWITCHED_OFF

    def after(self, event: HookEvent) -> HookStatus:
        """Return the status that follows an event. An event without a transition leaves the status unchanged."""
        return _HOOK.get((self, event), self)


_ACTING = frozenset([HookStatus.ACTIVE, HookStatus.MUTING, HookStatus.RETIRING])
_SWITCHED_OFF = frozenset([HookStatus.MUTED, HookStatus.MUTING])

_HOOK = {
    (HookStatus.IDLE, HookEvent.DUE): HookStatus.ACTIVE,
    (HookStatus.IDLE, HookEvent.MUTE): HookStatus.MUTED,
    (HookStatus.IDLE, HookEvent.RETIRE): HookStatus.RETIRED,
    (HookStatus.ACTIVE, HookEvent.NOT_DUE): HookStatus.IDLE,
    (HookStatus.ACTIVE, HookEvent.MUTE): HookStatus.MUTING,
    (HookStatus.ACTIVE, HookEvent.RETIRE): HookStatus.RETIRING,
    (HookStatus.ACTIVE, HookEvent.STOP): HookStatus.IDLE,
    (HookStatus.MUTING, HookEvent.NOT_DUE): HookStatus.MUTED,
    (HookStatus.MUTING, HookEvent.UNMUTE): HookStatus.ACTIVE,
    (HookStatus.MUTING, HookEvent.RETIRE): HookStatus.RETIRING,
    (HookStatus.MUTING, HookEvent.STOP): HookStatus.MUTED,
    (HookStatus.MUTED, HookEvent.UNMUTE): HookStatus.IDLE,
    (HookStatus.MUTED, HookEvent.RETIRE): HookStatus.RETIRED,
    (HookStatus.RETIRING, HookEvent.STOP): HookStatus.RETIRED,
}


class RegistrationEvent(Enum):
    """Lists the events that change the status of a registration."""

    #: the function is registered with PyTorch
    INSTALL = auto()
    #: an inert function replaces the registered function
    SUSPEND = auto()
    #: the function is removed from PyTorch
    REMOVE = auto()
    #: the target was replaced by a different object
    MOVE = auto()
    #: compiled code calls the module, and the graph includes this registration
    EXPECT = auto()


class RegistrationStatus(Enum):
    """Lists the statuses of a registration."""

    #: not registered with PyTorch
    ABSENT = auto()
    #: PyTorch calls the function
    INSTALLED = auto()
    #: PyTorch calls an inert function, which preserves the order of the other hooks
    SUSPENDED = auto()
    #: compiled code needs the registration; the next refresh installs it, whether or not a hook is due
    EXPECTED = auto()
    #: compiled code calls the function, which stays registered until the rig is detached
    PINNED = auto()

    @property
    def stays(self) -> bool:
        """Return True if the registration stays installed when no hook is due."""
        return self in _STAYING

    def after(self, event: RegistrationEvent) -> RegistrationStatus:
        """Return the status that follows an event. An event without a transition leaves the status unchanged."""
        return _REGISTRATION.get((self, event), self)


_STAYING = frozenset([RegistrationStatus.EXPECTED, RegistrationStatus.PINNED])

_REGISTRATION = {
    (RegistrationStatus.ABSENT, RegistrationEvent.INSTALL): RegistrationStatus.INSTALLED,
    (RegistrationStatus.ABSENT, RegistrationEvent.EXPECT): RegistrationStatus.EXPECTED,
    (RegistrationStatus.INSTALLED, RegistrationEvent.SUSPEND): RegistrationStatus.SUSPENDED,
    (RegistrationStatus.INSTALLED, RegistrationEvent.REMOVE): RegistrationStatus.ABSENT,
    (RegistrationStatus.INSTALLED, RegistrationEvent.MOVE): RegistrationStatus.ABSENT,
    (RegistrationStatus.INSTALLED, RegistrationEvent.EXPECT): RegistrationStatus.PINNED,
    (RegistrationStatus.SUSPENDED, RegistrationEvent.INSTALL): RegistrationStatus.INSTALLED,
    (RegistrationStatus.SUSPENDED, RegistrationEvent.REMOVE): RegistrationStatus.ABSENT,
    (RegistrationStatus.SUSPENDED, RegistrationEvent.MOVE): RegistrationStatus.ABSENT,
    (RegistrationStatus.SUSPENDED, RegistrationEvent.EXPECT): RegistrationStatus.EXPECTED,
    (RegistrationStatus.EXPECTED, RegistrationEvent.INSTALL): RegistrationStatus.PINNED,
    (RegistrationStatus.EXPECTED, RegistrationEvent.REMOVE): RegistrationStatus.ABSENT,
    (RegistrationStatus.PINNED, RegistrationEvent.REMOVE): RegistrationStatus.ABSENT,
    (RegistrationStatus.PINNED, RegistrationEvent.MOVE): RegistrationStatus.EXPECTED,
}
