"""Keeps compiled code consistent with a rig's registrations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import nn

from tenterhook.rig.compiled.graph_cache import Graphs, count, drop, in_graphs, unwatch, watch
from tenterhook.rig.runtime.registration import Registration, Touched


class GraphTracker:
    """Drops graphs that were compiled before a rig's registrations changed."""

    def __init__(self) -> None:
        #: registrations that were added or removed since the last update
        self.touched: Touched = []
        #: number of graphs dropped so far
        self.dropped = 0
        #: True if newly compiled code checks for hooks that are added later
        self.is_watching = False

    def watch(self, registrations: Iterable[Registration]) -> None:
        """Enable the check for new hooks and drop outdated graphs. Do nothing if the compiler is not loaded."""
        self.is_watching = watch(self)
        if self.is_watching:
            owners = ((one, one.target.owner()) for one in registrations)
            self.touched += [(one, owner) for one, owner in owners if isinstance(owner, nn.Module)]
            self.update()

    def unwatch(self) -> None:
        unwatch(self)

    def update(self) -> None:
        """Drop the graphs that no longer match the registrations.

        PyTorch compiles each dropped graph again at its next call. Once compiled code includes a registration, the
        registration stays installed, even if no hook is due.
        """
        if not self.touched:
            return
        touched, self.touched[:] = list(self.touched), []
        self.dropped += drop(module for _, module in touched)
        for registration, module in touched if self.dropped else ():
            if in_graphs(module):
                registration.expect()

    def report(self, registrations: Sequence[Registration]) -> Graphs:
        """Count the graphs that were dropped, and the graphs that call these registrations."""
        owners = (one.target.owner() for one in registrations if one.target.kind == "module")
        return Graphs(self.dropped, count(owner for owner in owners if isinstance(owner, nn.Module)))
