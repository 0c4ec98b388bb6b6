"""Keeping compiled code in line with a rig's registrations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import nn

from tenterhook.rig.compiled.graph_cache import Graphs, count, drop, in_graphs, unwatch, watch
from tenterhook.rig.runtime.registration import Registration, Touched


class GraphTracker:
    """Drops graphs that were compiled with other registrations of a rig than there are now."""

    def __init__(self) -> None:
        #: registrations that have come or gone since the last update
        self.touched: Touched = []
        #: graphs that changes have made void
        self.dropped = 0
        #: code that is compiled from now on looks for hooks that come later
        self.is_watching = False

    def watch(self, registrations: Iterable[Registration]) -> None:
        """Make sure that compiled code misses no hook, as soon as there can be any."""
        self.is_watching = watch(self)
        if self.is_watching:
            owners = ((one, one.target.owner()) for one in registrations)
            self.touched += [(one, owner) for one, owner in owners if isinstance(owner, nn.Module)]
            self.update()

    def unwatch(self) -> None:
        unwatch(self)

    def update(self) -> None:
        """Drop the graphs that changes made void: each is compiled again at its next call.

        A registration that compiled code knows stays from then on, whether a hook is due or not.
        """
        if not self.touched:
            return
        touched, self.touched[:] = list(self.touched), []
        self.dropped += drop(module for _, module in touched)
        for registration, module in touched if self.dropped else ():
            if in_graphs(module):
                registration.expect()

    def report(self, registrations: Sequence[Registration]) -> Graphs:
        """Count the graphs that were dropped, and those that call these registrations."""
        owners = (one.target.owner() for one in registrations if one.target.kind == "module")
        return Graphs(self.dropped, count(owner for owner in owners if isinstance(owner, nn.Module)))
