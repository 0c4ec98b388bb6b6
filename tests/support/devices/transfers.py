"""Count what moves between a device and the host: reads, copies that wait, and copies that do not wait."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import FrameType

#: names of the threads that tenterhook starts begin with this
WRITERS = "tenterhook"


class Kind(StrEnum):
    """The kinds of transfer. A `READ` gives a number to Python, so the thread waits for the device."""

    READ = "host read"
    TO_HOST = "blocking copy to the host"
    TO_DEVICE = "blocking copy to the device"
    TO_HOST_LATER = "asynchronous copy to the host"
    TO_DEVICE_LATER = "asynchronous copy to the device"


#: the kinds for which a thread waits
WAITS = (Kind.READ, Kind.TO_HOST, Kind.TO_DEVICE)


@dataclass(frozen=True, slots=True)
class Transfer:
    """Describes one transfer: what happened, in which thread, and in which line of the program or the package."""

    kind: Kind
    operation: str
    thread: str
    place: str

    @property
    def in_training(self) -> bool:
        """Return True if a thread of the training did this: the main thread, or a device's thread of autograd."""
        return not self.thread.startswith(WRITERS)


#: the transfers since the counter was started, or None while nothing is counted
_found: list[Transfer] | None = None
#: number of times that the counter was started
window = 0


def note(kind: Kind, operation: str) -> None:
    """Add a transfer that happens now."""
    if _found is not None:
        _found.append(Transfer(kind, operation, threading.current_thread().name, _caller(sys._getframe(1))))


@contextmanager
def counted() -> Iterator[list[Transfer]]:
    """Count the transfers of all threads inside a `with` block."""
    global _found, window
    outer, _found, window = _found, [], window + 1
    try:
        yield _found
    finally:
        _found = outer


def counts(transfers: list[Transfer]) -> dict[str, int]:
    """Return the number of transfers of each kind that the threads of the training made."""
    number = Counter(one.kind.value for one in transfers if one.in_training)
    return {kind.value: number[kind.value] for kind in Kind}


def _caller(frame: FrameType | None) -> str:
    """Return the innermost line of the package, or else of the program, that led to a transfer."""
    first = ""
    while frame is not None:
        path = frame.f_code.co_filename
        if "/tenterhook/" in path and not path.endswith("/tenterhook/transfers.py"):
            return f"{path.rpartition('/tenterhook/')[2]}:{frame.f_lineno}"
        if not first and "/torch/" not in path and not path.endswith(("transfers.py", "simulated.py")):
            first = f"{path.rpartition('/')[2]}:{frame.f_lineno}"
        frame = frame.f_back
    return first
