"""The ledger: of every site, where it is installed, how often it fired, what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from tenterhook.actions import Context
from tenterhook.errors import nearest
from tenterhook.plan import Hook

if TYPE_CHECKING:
    from tenterhook.rig.graphs import Graphs
    from tenterhook.rig.live import LiveHook
    from tenterhook.rig.names import Target


#: how the reason of a site that muted itself begins
MUTED = "muted"
#: why a site sleeps whose target was taken off the model
ELSEWHERE = "on another rank"
GONE = "no longer on the model under this name"


class Site:
    """One hook at one target: its place, and its line in the ledger. Counters are bare ints: firing is hot."""

    __slots__ = (
        "_due_before", "_due_since", "bound", "changed", "ctx", "dormant", "failed", "fired", "first", "installed",
        "last", "live", "order", "rebound", "skipped", "slot", "target",
    )  # fmt: skip

    def __init__(self, live: LiveHook, target: Target, slot: int) -> None:
        self.live = live
        self.target = target
        self.slot = slot
        #: id of the parameter that an optimizer's step last found at the name
        self.bound: int | None = None
        self.ctx: Context | None = None
        #: registered with PyTorch now; a hook that is not due in this step is not
        self.installed = False
        #: why it cannot fire as the model stands
        self.dormant: str | None = None
        self.fired = 0
        self.changed = 0
        self.failed = 0
        self.rebound = 0
        #: how often it was due but let pass, by reason
        self.skipped: dict[str, int] | None = None
        #: steps of the first and the last firing, -1 before
        self.first = -1
        self.last = -1
        #: place in the order of firings; compare within a step
        self.order = -1
        self._due_before = 0
        self._due_since = live.due_steps

    @property
    def hook(self) -> str:
        return self.live.hook.id

    @property
    def point(self) -> str:
        return self.live.hook.at

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def due(self) -> int:
        """Steps in which it was due and could fire."""
        return self._due_before + (0 if self.dormant else self.live.due_steps - self._due_since)

    def begin_anew(self, due: int = 0) -> None:
        """Every counter at zero, but for the steps it was due in."""
        self.fired = self.changed = self.failed = self.rebound = 0
        self.first = self.last = self.order = -1
        self.skipped = None
        if self.dormant is not None and self.dormant.startswith(MUTED):
            self.dormant = None
        self._due_before, self._due_since = due, self.live.due_steps

    def sleep(self, why: str) -> None:
        if self.dormant is None:
            self._due_before = self.due
        self.dormant = why
        self.live.sleeps = True

    def wake(self) -> None:
        if self.dormant is not None:
            self.dormant = None
            self._due_since = self.live.due_steps

    def skip(self, why: str) -> None:
        if self.skipped is None:
            self.skipped = {}
        self.skipped[why] = self.skipped.get(why, 0) + 1

    @property
    def state(self) -> str:
        """One word: dormant, muted, installed, or idle (attached, not due in this step)."""
        if self.dormant:
            return "dormant"
        if self.live.muted:
            return "muted"
        return "installed" if self.installed else "idle"

    def __repr__(self) -> str:
        return (
            f"<site {self.hook} at {self.point} on {self.name!r}: {self.state}, "
            f"due {self.due}, fired {self.fired}, changed {self.changed}>"
        )


class Account(Mapping[str, Site]):
    """A hook's sites by target."""

    def __init__(self, live: LiveHook) -> None:
        self._live = live

    def __getitem__(self, target: str) -> Site:
        sites = self._live.sites
        found = next((s for s in sites if s.name == target), None)
        found = found or next((s for s in sites if target in s.target.aliases), None)
        if found is None:
            close = nearest(target, [s.name for s in sites])
            raise KeyError(
                f"{target!r} is no target of this hook" + (f"; the nearest is {close[0]!r}" if close else "")
            )
        return found

    def __iter__(self) -> Iterator[str]:
        return (site.name for site in self._live.sites)

    def __len__(self) -> int:
        return len(self._live.sites)

    @property
    def fired(self) -> int:
        return sum(site.fired for site in self._live.sites)

    @property
    def changed(self) -> int:
        return sum(site.changed for site in self._live.sites)

    @property
    def hook(self) -> Hook:
        return self._live.hook

    @property
    def measured(self) -> str:
        """How its sites are measured: together, and by what; or one by one, as they fire."""
        gauge = self._live.gauge
        return "one by one" if gauge is None else f"together, {gauge.engine}"

    @property
    def failed(self) -> int:
        return sum(site.failed for site in self._live.sites)

    @property
    def due(self) -> int:
        """Steps in which the hook was due."""
        return self._live.due_steps

    @property
    def dormant(self) -> dict[str, str]:
        return {site.name: site.dormant for site in self._live.sites if site.dormant}

    @property
    def skipped(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for site in self._live.sites:
            for why, count in (site.skipped or {}).items():
                total[why] = total.get(why, 0) + count
        return total

    def __repr__(self) -> str:
        from tenterhook.rig.table import account_table

        return account_table(self).text()

    def _repr_html_(self) -> str:
        from tenterhook.rig.table import account_table

        return account_table(self).html()


class Ledger(Mapping[str, Account]):
    """The accounts of a rig by hook id, in plan order."""

    def __init__(self, lives: Mapping[str, LiveHook], graphs: Callable[[], Graphs]) -> None:
        self._lives = lives
        self._graphs = graphs

    @property
    def graphs(self) -> Graphs:
        """Of torch.compile: how many have doors for these hooks, and how many were dropped for their changes."""
        return self._graphs()

    def __getitem__(self, id: str) -> Account:
        if id not in self._lives:
            close = nearest(id, list(self._lives))
            raise KeyError(f"no hook {id!r} on the rig" + (f"; the nearest is {close[0]!r}" if close else ""))
        return Account(self._lives[id])

    def __repr__(self) -> str:
        return f"<ledger of {', '.join(self._lives) or 'no hooks'}>"

    def __iter__(self) -> Iterator[str]:
        return iter(self._lives)

    def __len__(self) -> int:
        return len(self._lives)

    def order(self) -> list[Site]:
        """The sites that fired in the last step, in the order of their last firing; of this process alone."""
        sites = [s for live in self._lives.values() for s in live.sites if s.order >= 0]
        last = max((s.last for s in sites), default=-1)
        return sorted((s for s in sites if s.last == last), key=lambda s: s.order)
