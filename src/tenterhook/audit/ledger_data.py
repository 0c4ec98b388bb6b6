"""Declare the data of the ledger that the auditor reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tenterhook.plan import Hook


class SiteData(Protocol):
    """Describes one hook at one target, with its counters."""

    fired: int
    failed: int
    skipped: dict[str, int] | None
    dormant: str | None
    installed: bool

    @property
    def name(self) -> str: ...
    @property
    def aliases(self) -> Sequence[str]: ...
    @property
    def muted_itself(self) -> bool: ...
    @property
    def owner(self) -> object:
        """Return the module that the site is on, or the module that has its parameter."""


class HookData(Protocol):
    """Describes an attached hook and its sites."""

    active: bool

    @property
    def hook(self) -> Hook: ...
    @property
    def modifies(self) -> bool: ...
    @property
    def sites(self) -> Sequence[SiteData]: ...


class Structure(Protocol):
    """Tells that the model has changed."""

    #: how often the rig has looked up all targets again, because the model had changed
    resolved: int


class LedgerData(Protocol):
    """Describes the books that the auditor checks."""

    @property
    def hooks(self) -> Sequence[HookData]: ...
    @property
    def step(self) -> int:
        """Return the number of finished steps."""

    @property
    def structure(self) -> Structure:
        """Return what tells that the model has changed."""

    @property
    def rig(self) -> int:
        """Return the number of the rig, which is the last part of the `place` of each function that it registers."""

    @property
    def taps(self) -> Sequence[str]:
        """Return the names of the taps that ran."""


#: how the ledger's reason begins for a target that is not in the model any more
_GONE = "no longer in"


def is_gone(site: SiteData) -> bool:
    """Return True if the ledger says that the target is not in the model any more."""
    return site.dormant is not None and site.dormant.startswith(_GONE)


def sites_by_name(hook: HookData) -> dict[str, SiteData]:
    """Return the sites of a hook under all their names. A name belongs to a target that is still there, if any."""
    ordered = sorted(hook.sites, key=is_gone, reverse=True)
    return {name: site for site in ordered for name in (*site.aliases, site.name)}


def settled(site: SiteData, *, skips: bool) -> int:
    """Return how often a site acted, failed or, if `skips` is True, was skipped for a reason."""
    return site.fired + site.failed + (sum(site.skipped.values()) if skips and site.skipped else 0)
