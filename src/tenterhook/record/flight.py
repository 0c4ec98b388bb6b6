"""Keep the most recent steps in memory, and write them to a folder when something goes wrong."""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count

from tenterhook.record.containment import call_and_report
from tenterhook.record.rows import Batch
from tenterhook.record.run_folder.folder import Folder
from tenterhook.record.store import Store
from tenterhook.record.suspects import ModelSnapshot, Suspect, rank_suspects
from tenterhook.record.verdict import Verdict

REPORT = "flight.json"
#: what fails if a report cannot be written
WRITING = "writing a flight report"


@dataclass(frozen=True, slots=True)
class FlightReport:
    """A report that a flight recorder wrote, with its folder, its reason, and the verdict about the training.

    If there is no verdict, `suspects` lists the targets that probably caused the problem, the most likely one first.
    """

    path: str
    step: int
    reason: str
    suspects: tuple[Suspect, ...]
    #: what went wrong in the training, or None if that is unknown
    verdict: Verdict | None = None

    def __str__(self) -> str:
        lines = [f"step {self.step}: {self.reason}"]
        lines += [f"  {line}" for line in str(self.verdict).split("\n") if self.verdict is not None]
        lines += [f"  {s.kind:9} {s.target} at {s.point}: {s.why}" for s in self.suspects]
        return "\n".join([*lines, f"  {self.path}"])


class Flight:
    """A sink that keeps the most recent steps in memory, and writes them to a folder when something goes wrong.

    A flight recorder writes a report when a trigger trips, when an error ends the program or the rig's `with` block,
    and when the process receives SIGTERM. Each report is a new run folder inside `path`. The file `flight.json` in this
    folder has the verdict about the training, or a list of suspects: the targets that probably caused the problem. The
    report is also added to `reports`.

    Args:
        path: Folder that will contain the run folders. The path may be a URI that Arrow supports.
        steps: Number of recent steps to keep. A trip does not write a report if it occurs within `steps`
            steps after the previous report.

    Attributes:
        path: The folder, as text.
        steps: Number of recent steps to keep.
        reports: The reports written so far, each with `path`, `step`, `reason` and `suspects`.

    Raises:
        StoreError: pyarrow is not installed.

    Example:
        >>> import tempfile
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> flight = th.Flight(tempfile.mkdtemp())
        >>> hook = th.Hook("bad", on="**", at="grad", do=th.watch_nonfinite())
        >>> with th.attach(model, hook, sinks=flight):
        ...     model(torch.tensor([[float("nan")]])).sum().backward()
        >>> flight.reports[0].reason
        "watch_nonfinite 'bad' tripped at 'weight'"
    """

    def __init__(self, path: str | os.PathLike[str], *, steps: int = 64) -> None:
        self.path = os.fspath(path)
        self.steps = steps
        self.reports: list[FlightReport] = []
        self._batches: deque[Batch] = deque(maxlen=steps)
        self._snapshot: Callable[[], ModelSnapshot | None] = lambda: None
        #: the step of the last report
        self._written = -1
        self._writing: list[threading.Thread] = []
        Folder(path)  # if pyarrow is missing, raises an error here instead of at the first report
        self._process = os.getpid()

    # -- called by the rig -------------------------------------------------------------------------------------------

    def begin(self, snapshot: Callable[[], ModelSnapshot | None]) -> None:
        """Start recording for a rig, and discard the steps recorded for an earlier rig. The rig calls this method.

        Args:
            snapshot: Function that returns facts about the model and its hooks. The function must not hold
                a strong reference to the rig.
        """
        self._snapshot = snapshot
        self._batches.clear()
        self._written = -1
        _flights.add(self)

    def record(self, batch: Batch) -> None:
        """Keep the rows of a step, and drop the oldest step if the limit is exceeded. The rig calls this method.

        Args:
            batch: The rows of the step.
        """
        if self._batches and self._batches[-1].step == batch.step:  # numbers that were known only one step later
            batch = self._batches.pop().joined(batch)
        self._batches.append(batch)

    def trip(self, reason: str, verdict: Verdict | None = None) -> None:
        """Write a report in a new thread, at most once every `steps` steps.

        The rig calls this method when a trigger trips.

        Args:
            reason: Text for the report.
            verdict: What went wrong in the training, if that is known.
        """
        step = self._batches[-1].step if self._batches else 0
        if self._written >= 0 and step < self._written + self.steps:
            return
        self._written = step
        write = partial(self._write, *self._evidence(reason), verdict)
        thread = threading.Thread(target=call_and_report, args=(WRITING, write), name="tenterhook: flight")
        thread.start()
        self._writing.append(thread)

    def fail(self, reason: str, verdict: Verdict | None = None) -> None:
        """Write a report before returning, because the process may end soon.

        Args:
            reason: Text for the report.
            verdict: What went wrong in the training, if that is known.
        """
        # A forked process, such as a data loader worker, may receive SIGTERM even if nothing is wrong.
        if self._batches and self._batches[-1].step != self._written and os.getpid() == self._process:
            self._written = self._batches[-1].step
            self._write(*self._evidence(reason), verdict)

    def catch_up(self, timeout: float) -> bool:
        """Wait until all reports in progress are written.

        Args:
            timeout: Seconds to wait for each report.

        Returns:
            True if all reports have been written.
        """
        for thread in self._writing:
            thread.join(timeout)
        self._writing = [thread for thread in self._writing if thread.is_alive()]
        return not self._writing

    def close(self) -> None:
        """Wait up to thirty seconds for each unfinished report."""
        self.catch_up(30.0)  # a report is the reason to have a recorder; on a busy machine, writing it takes seconds
        _flights.discard(self)

    # -- writing -----------------------------------------------------------------------------------------------------

    def _evidence(self, reason: str) -> tuple[str, list[Batch], ModelSnapshot]:
        try:
            snapshot = self._snapshot()
        except Exception as error:  # a report without suspects is better than no report
            warnings.warn(
                f"tenterhook: the flight recorder could not read the model, so suspects may be missing: {error!r}",
                stacklevel=2,
            )
            snapshot = None
        return reason, list(self._batches), snapshot or ModelSnapshot()

    def _write(self, reason: str, batches: list[Batch], snapshot: ModelSnapshot, verdict: Verdict | None) -> None:
        step = batches[-1].step if batches else 0
        path = _make_folder(f"{self.path}/step-{step:08}")
        suspects = () if verdict is not None else tuple(rank_suspects(batches, snapshot))
        report = FlightReport(path, step, reason, suspects, verdict)
        store = Store(path)
        store.write(batches)
        store.close()
        Folder(path).write(REPORT, json.dumps(asdict(report), indent=1).encode())
        self.reports.append(report)


def _make_folder(path: str) -> str:
    """Create a new folder, so that nothing that is already there is written into, and return its path."""
    for number in count(1):
        new = path if number == 1 else f"{path}-{number}"
        if Folder(new).make_new():
            return new
    raise AssertionError


_flights: weakref.WeakSet[Flight] = weakref.WeakSet()


def _at_exit() -> None:
    """Write a report if an uncaught error ended the program. Python stores an uncaught error in `sys.last_value`."""
    error = getattr(sys, "last_value", None)
    for flight in list(_flights) if error is not None else ():
        reason = f"the program ended with {type(error).__name__}: {error}".removesuffix(": ")
        call_and_report(WRITING, flight.fail, reason)


atexit.register(_at_exit)
