"""Keep the surfaces that were used last, of all runs together."""

from __future__ import annotations

import threading
from collections import OrderedDict

from tenterhook.view.data.surface import Surface

#: maximum number of bytes of all surfaces
MAX_BYTES = 480_000_000
#: a run, a hook and the name of a number
Key = tuple[str, str, str]


class Surfaces:
    """Surfaces by run, hook and name. Several threads may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, Surface] = OrderedDict()

    def get(self, key: Key) -> Surface | None:
        """Return a surface, or None if there is none."""
        with self._lock:
            surface = self._kept.get(key)
            if surface is not None:
                self._kept.move_to_end(key)
            return surface

    def put(self, key: Key, surface: Surface) -> None:
        """Keep a surface. Forget those that were not used for the longest time if all are too large."""
        with self._lock:
            self._kept[key] = surface
            self._kept.move_to_end(key)
            while sum(one.size for one in self._kept.values()) > MAX_BYTES and len(self._kept) > 1:
                self._kept.popitem(last=False)
