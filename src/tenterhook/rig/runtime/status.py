"""The states of a hook and of a registration, and every transition between them."""

from __future__ import annotations

from enum import Enum, auto


class HookEvent(Enum):
    """What happens to a hook."""

    #: its schedule says that it acts in this step, or that it does not
    DUE = auto()
    NOT_DUE = auto()
    #: the user switches it off, or on again
    MUTE = auto()
    UNMUTE = auto()
    #: it is no longer in the plan
    RETIRE = auto()
    #: the forward that it had to act in has ended, or its rig leaves the model
    STOP = auto()


class HookStatus(Enum):
    """What a hook does now."""

    #: attached, not due in this step
    IDLE = auto()
    #: due in this step: it acts
    ACTIVE = auto()
    #: switched off
    MUTED = auto()
    #: switched off inside a forward that it modifies; it acts until that forward ends
    MUTING = auto()
    #: removed inside a forward that it modifies; it acts until that forward ends
    RETIRING = auto()
    #: removed; a graph that is still alive may recompute with it
    RETIRED = auto()

    @property
    def acts(self) -> bool:
        """True if the hook fires."""
        return self in _ACTING

    @property
    def is_muted(self) -> bool:
        return self in _SWITCHED_OFF

    def after(self, event: HookEvent) -> HookStatus:
        """Return the status after an event; an event that means nothing to this one changes nothing."""
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
    """What happens to a registration."""

    #: PyTorch is given the function to call
    INSTALL = auto()
    #: an inert function takes its place
    SUSPEND = auto()
    #: PyTorch forgets it
    REMOVE = auto()
    #: its target became another object
    MOVE = auto()
    #: compiled code calls its module, with this registration in the graph
    EXPECT = auto()


class RegistrationStatus(Enum):
    """What PyTorch has of a registration."""

    #: nothing
    ABSENT = auto()
    #: a function, which it calls
    INSTALLED = auto()
    #: an inert function, which keeps its place among the hooks of others
    SUSPENDED = auto()
    #: compiled code expects it; it is installed at the next refresh, whether a hook is due or not
    EXPECTED = auto()
    #: a function that compiled code calls; it stays until the rig leaves
    PINNED = auto()

    @property
    def stays(self) -> bool:
        """True if it is wanted even when no hook is due."""
        return self in _STAYING

    def after(self, event: RegistrationEvent) -> RegistrationStatus:
        """Return the status after an event; an event that means nothing to this one changes nothing."""
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
