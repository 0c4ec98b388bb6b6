"""Record in a process that is going to be killed.

Each value is a function of its step and target, so that a reader can check it. After each write, the store appends the
first and last step of that write to a second file, one line for each write.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from tenterhook.record import Batch, Row, SinkWorker, Store

TARGETS = 7


def value(step: int, target: int) -> float:
    return step * 1.5 + target / 7


def batch(step: int) -> Batch:
    return Batch(step, 0, {}, [Row(step, 0, "h", f"t{i}", "n", value(step, i)) for i in range(TARGETS)])


class Telling(Store):
    """Write the numbers of the steps to a file after the steps are stored safely."""

    def __init__(self, path: str, acknowledged: str) -> None:
        super().__init__(path, linger=0.005)
        self._file = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, batches: Sequence[Batch]) -> None:
        super().write(batches)
        os.write(self._file, f"{batches[0].step} {batches[-1].step}\n".encode())


def main(path: str, acknowledged: str, first: int, last: int) -> None:
    worker = SinkWorker(Telling(path, acknowledged))
    for step in range(first, last):
        worker.enqueue(batch(step))
        if step % 50 == 49:
            worker.catch_up(5.0)
    worker.close()
