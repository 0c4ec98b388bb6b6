"""Notice hooks that fire while a CUDA graph is captured. A replay of the graph runs its kernels, but no Python."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from tenterhook import torch_internals as private
from tenterhook.audit.imbalance import Imbalance, Imbalances
from tenterhook.audit.ledger_data import LedgerData

_REMEDY = (
    "call the hooked part outside torch.cuda.graph, or use an option of the trainer such as disable_cuda_graphs=True"
)


class CaptureAudit:
    """An object that reports hooks that fired while a CUDA graph was captured."""

    def __init__(self, ledger: LedgerData, found: Imbalances) -> None:
        self._ledger = ledger
        self._found = found
        #: how often each hook had fired at each target when the capture began
        self._fired: dict[tuple[str, str], int] = {}
        self._stop: Callable[[], None] = lambda: None

    def begin(self) -> None:
        """Begin to notice captures."""
        began, ended = weakref.WeakMethod(self._began), weakref.WeakMethod(self._ended)
        self._stop = private.watch_captures(lambda: _call(began), lambda: _call(ended))
        weakref.finalize(self, self._stop)

    def close(self) -> None:
        """Stop noticing captures."""
        self._stop()

    def _counts(self) -> dict[tuple[str, str], int]:
        return {(hook.hook.id, site.name): site.fired for hook in self._ledger.hooks for site in hook.sites}

    def _began(self) -> None:
        self._fired = self._counts()

    def _ended(self) -> None:
        now = self._counts()
        for hook in self._ledger.hooks:
            id = hook.hook.id
            times = {site.name: now[id, site.name] - self._fired.get((id, site.name), 0) for site in hook.sites}
            captured = [name for name, count in times.items() if count]
            if captured:
                lost = (
                    "its kernels run as they were captured, whatever its schedule says, and it is not counted"
                    if hook.modifies
                    else "it measures nothing"
                )
                cause = f"it fired while a CUDA graph was captured; when the graph is replayed, {lost}"
                self._found.add(
                    [Imbalance("TH710", cause, _REMEDY, id, hook.hook.at, captured[0], frozenset(captured))]
                )


def _call(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    found = method()
    if found is not None:
        found()
