"""Hold the runs that are shown, open them when they are asked for, and notice what changed."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tenterhook.diff import Difference, compare
from tenterhook.errors import StoreError
from tenterhook.record import no_run_in
from tenterhook.record.run_folder.find_runs import find_runs
from tenterhook.view.data.messages import Change, RunHead
from tenterhook.view.data.run_data import RunData, head_of
from tenterhook.view.data.surfaces import Surfaces

#: number of runs that stay open
MAX_OPEN = 16
#: number of comparisons that are kept
MAX_DIFFERENCES = 64
#: seconds between two searches for new runs
SEARCH_EVERY = 2.0


@dataclass(slots=True)
class _Seen:
    """The state of a run folder when it was last looked at."""

    modified: int
    change: Change


class Library:
    """The runs in some folders. Several threads may call it.

    Args:
        paths: Run folders, or folders that contain run folders. Runs that are added later are found as well.

    Raises:
        StoreError: A path is a file.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        self._paths = [Path(path) for path in paths]
        self._lock = threading.Lock()
        self._open: OrderedDict[str, RunData] = OrderedDict()
        self._surfaces = Surfaces()
        self._seen: dict[str, _Seen] = {}
        self._folders: dict[str, Path] = {}
        #: for each pair of runs, when their folders were modified, and where they differ
        self._differences: dict[tuple[str, str], tuple[tuple[int, int], Difference]] = {}
        self._searched = -SEARCH_EVERY
        for path in self._paths:
            if path.exists() and not path.is_dir():
                raise no_run_in(str(path), "pass a run folder, or a folder that contains runs")

    def folders(self) -> dict[str, Path]:
        """Return the run folders by id. The folders are searched again if the last search is old."""
        if time.monotonic() - self._searched > SEARCH_EVERY:
            self._folders = find_runs(self._paths)
            self._searched = time.monotonic()
        return self._folders

    def heads(self) -> list[RunHead]:
        """Return what identifies each run."""
        return [head_of(id, folder) for id, folder in self.folders().items()]

    def open(self, id: str) -> RunData:
        """Return the data of a run.

        Raises:
            KeyError: There is no such run.
            StoreError: The run cannot be read.
        """
        folder = self.folders()[id]
        with self._lock:
            run = self._open.get(id)
            if run is None:
                run = self._open[id] = RunData(id, folder, self._surfaces)
                while len(self._open) > MAX_OPEN:
                    self._open.popitem(last=False)
            self._open.move_to_end(id)
        return run

    def open_newest(self) -> None:
        """Open the run that was written last, which is probably the first one that is asked for."""
        folders = self.folders()
        if folders:
            with suppress(StoreError, OSError):  # a request for the run says why it cannot be read
                self.open(max(folders, key=lambda run: os.stat(folders[run]).st_mtime_ns))

    def difference(self, a: str, b: str) -> Difference:
        """Return where two runs differ first.

        Raises:
            KeyError: There is no such run.
            StoreError: A run cannot be read, or both are the same.
        """
        folders = self.folders()
        modified = os.stat(folders[a]).st_mtime_ns, os.stat(folders[b]).st_mtime_ns
        kept = self._differences.get((a, b))
        if kept is not None and kept[0] == modified:
            return kept[1]
        found = compare(folders[a], folders[b])
        if len(self._differences) >= MAX_DIFFERENCES:
            self._differences.clear()
        self._differences[a, b] = modified, found
        return found

    def changes(self) -> list[Change]:
        """Return the state of each open run. A run whose folder has not changed is not read again."""
        with self._lock:
            runs = list(self._open.values())
        found = []
        for run in runs:
            try:
                modified = os.stat(run.folder).st_mtime_ns
                seen = self._seen.get(run.id)
                if seen is None or seen.modified != modified or seen.change.live:
                    if seen is None or seen.modified != modified:
                        run.update()
                    head = run.head()
                    change = Change(run.id, run.last, run.revision(), head.live)
                    seen = self._seen[run.id] = _Seen(modified, change)
                found.append(seen.change)
            except (StoreError, OSError):  # a request for its data says why
                continue
        return found
