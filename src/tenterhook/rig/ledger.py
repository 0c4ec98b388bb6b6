"""Define the ledger, which counts how often each site was due, fired, changed a value, was skipped or failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tenterhook.drawing import bar
from tenterhook.errors import UnknownHookError, nearest
from tenterhook.plan import Hook
from tenterhook.rig.compiled.graph_cache import Graphs
from tenterhook.rig.runtime.attached_hook import AttachedHook, Site
from tenterhook.text_table import MOST, TextTable


class Account(Mapping[str, Site]):
    """A mapping from the target names of one hook to its sites.

    `rig.ledger[id]` returns an account. A site represents the hook at one target and stores the counts for that target.
    If a tensor or module has several names, you can use any of them.

    Args:
        attached: The attached hook.

    Raises:
        KeyError: The hook does not have this target.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Linear(2, 1)
        >>> rig = th.attach(model, th.Hook("g", on="**", at="grad", do=th.scale(2.0)))
        >>> model(torch.ones(1, 2)).sum().backward()
        >>> account = rig.ledger["g"]
        >>> list(account), account.fired, account["bias"].changed
        (['weight', 'bias'], 2, 1)
    """

    def __init__(self, attached: AttachedHook) -> None:
        self._attached = attached

    def __getitem__(self, target: str) -> Site:
        sites = self._attached.sites
        found = next((s for s in sites if s.name == target), None)
        found = found or next((s for s in sites if target in s.target.aliases), None)
        if found is None:
            close = nearest(target, [s.name for s in sites])
            raise KeyError(
                f"{target!r} is not a target of this hook" + (f"; the nearest is {close[0]!r}" if close else "")
            )
        return found

    def __iter__(self) -> Iterator[str]:
        return (site.name for site in self._attached.sites)

    def __len__(self) -> int:
        return len(self._attached.sites)

    @property
    def fired(self) -> int:
        """Return how often the hook fired, summed over all targets."""
        return sum(site.fired for site in self._attached.sites)

    @property
    def changed(self) -> int:
        """Return how often the hook returned a different value, summed over all targets."""
        return sum(site.changed for site in self._attached.sites)

    @property
    def hook(self) -> Hook:
        """Return the hook as defined in the plan."""
        return self._attached.hook

    @property
    def state(self) -> str:
        """Return the state of the hook as one word.

        Returns:
            `"muted"`, `"dormant"` (no target can fire), `"installed"`, or `"idle"` (attached, but not due in this
            step).
        """
        asleep = [site for site in self._attached.sites if site.dormant]
        everything = bool(asleep) and len(asleep) == len(self)
        if self._attached.status.is_muted or (everything and all(site.muted_itself for site in asleep)):
            return "muted"
        if everything:
            return "dormant"
        return "installed" if self._attached.active else "idle"

    @property
    def measured(self) -> str:
        """Return how the targets are measured: `"one by one"`, or `"together, "` followed by the implementation."""
        batch = self._attached.batch
        return "one by one" if batch is None else f"together, {batch.engine}"

    @property
    def failed(self) -> int:
        """Return how often the action raised an error, summed over all targets."""
        return sum(site.failed for site in self._attached.sites)

    @property
    def due(self) -> int:
        """Return the number of steps in which the hook was due."""
        return self._attached.due_steps

    @property
    def dormant(self) -> dict[str, str]:
        """Return the dormant targets, each with the reason why it is dormant."""
        return {site.name: site.dormant for site in self._attached.sites if site.dormant}

    @property
    def skipped(self) -> dict[str, int]:
        """Return how often the hook was due but did not fire, by reason, summed over all targets."""
        total: dict[str, int] = {}
        for site in self._attached.sites:
            for why, count in (site.skipped or {}).items():
                total[why] = total.get(why, 0) + count
        return total

    def __repr__(self) -> str:
        return account_table(self).text()

    def _repr_html_(self) -> str:
        return account_table(self).html()


class Ledger(Mapping[str, Account]):
    """A mapping from the id of each hook to its `Account`, in plan order.

    `rig.ledger` returns a ledger.

    Args:
        hooks: The hooks on the model, by id.
        graphs: Function that counts compiled graphs.

    Raises:
        KeyError: The rig has no hook with this id.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Linear(2, 1)
        >>> rig = th.watch(model)
        >>> rig.ledger
        <ledger of grads, outputs>
    """

    def __init__(self, hooks: Mapping[str, AttachedHook], graphs: Callable[[], Graphs]) -> None:
        self._hooks = hooks
        self._graphs = graphs

    @property
    def graphs(self) -> Graphs:
        """Return how many compiled graphs call these hooks, and how many graphs were dropped when the hooks changed."""
        return self._graphs()

    def __getitem__(self, id: str) -> Account:
        if id not in self._hooks:
            raise UnknownHookError.among(id, self._hooks, "rig")
        return Account(self._hooks[id])

    def _repr_html_(self) -> str:
        return ledger_table(self, "ledger").html()

    def __repr__(self) -> str:
        return f"<ledger of {', '.join(self._hooks) or 'no hooks'}>"

    def __iter__(self) -> Iterator[str]:
        return iter(self._hooks)

    def __len__(self) -> int:
        return len(self._hooks)

    def order(self) -> list[Site]:
        """Return the sites that fired in the last step, in the order in which they last fired.

        Returns:
            The sites that fired in this process, not those that fired on other ranks.

        Example:
            >>> import torch
            >>> import tenterhook as th
            >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
            >>> rig = th.attach(model, th.Hook("out", on="*", at="output", do=th.stats()))
            >>> _ = model(torch.ones(1, 2))
            >>> [site.name for site in rig.ledger.order()]
            ['0', '1']
        """
        sites = [s for attached in self._hooks.values() for s in attached.sites if s.order >= 0]
        last = max((s.last for s in sites), default=-1)
        return sorted((s for s in sites if s.last == last), key=lambda s: s.order)


def ledger_table(ledger: Mapping[str, Account], title: str, foot: str = "") -> TextTable:
    """Return a table of all hooks. As HTML, it also shows which part of the calls that were due fired."""
    rows, bars = [], []
    for id, account in ledger.items():
        asleep, fired, skipped = len(account.dormant), account.fired, sum(account.skipped.values())
        rows.append(
            [
                id,
                account.hook.at,
                account.hook.doing,
                len(account) - asleep,
                asleep,
                account.state,
                account.due,
                fired,
                account.changed,
                skipped,
                account.failed,
            ]
        )
        bars.append(bar(fired / max(fired + skipped, 1), f"{id}: {fired:,} fired, {skipped:,} skipped"))
    head = ("hook", "at", "do", "sites", "dormant", "state", "due", "fired", "changed", "skipped", "failed")
    return TextTable(title, head, rows, foot, bars)


def account_table(account: Account) -> TextTable:
    rows = []
    for site in list(account.values())[:MOST]:
        notes = [f"dormant: {site.dormant}"] if site.dormant else []
        notes += [f"skipped {n}: {why}" for why, n in (site.skipped or {}).items()]
        notes += [f"re-bound {site.rebound}"] if site.rebound else []
        last = None if site.last < 0 else site.last
        rows.append([site.name, site.state, site.due, site.fired, site.changed, site.failed, last, "; ".join(notes)])
    foot = f"... and {len(account) - MOST} more" if len(account) > MOST else ""
    head = ("target", "state", "due", "fired", "changed", "failed", "last step", "notes")
    return TextTable("", head, rows, foot)
