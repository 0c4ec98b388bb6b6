"""Answer what the user interface asks about one run."""

from __future__ import annotations

import hashlib
import math
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tenterhook.errors import PlanError, PlanFileError, StoreError
from tenterhook.plan import Plan
from tenterhook.plan.histogram import BINS, LOWEST_EXPONENT
from tenterhook.record import LEDGER, VERDICTS, FlightFile, Folder, open_run, read_json
from tenterhook.record.run_folder.find_runs import folders_in
from tenterhook.record.run_folder.part import Part
from tenterhook.record.run_folder.writer_lock import is_held
from tenterhook.view.data.contents import Contents
from tenterhook.view.data.finding_pages import pages_about
from tenterhook.view.data.messages import (
    Curve,
    CurveRequest,
    Histogram,
    Histograms,
    MatrixRequest,
    Range,
    RunHead,
    RunSummary,
    Series,
    TargetNumber,
    finite,
)
from tenterhook.view.data.pyramids import Pyramids
from tenterhook.view.data.sentence import sentence_of
from tenterhook.view.data.surface import Surface
from tenterhook.view.data.surfaces import Surfaces

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: for each cell, its largest magnitude or its mean, and whether any of its values is not finite
_MAXIMUM = """
with asked as (select unnest(?::int[]) as first_place, unnest(?::int[]) as end_place, unnest(?::int[]) as line)
select (line * ? + (step - ?) // ?)::bigint as cell, max(abs(value)) filter (isfinite(value)) as value,
  bool_or(not isfinite(value)) as bad
from rows join places using (target) join asked on place >= first_place and place < end_place
where hook = ? and name = ? and value is not null and step >= ? and step < ?
group by all
"""
_MEAN = _MAXIMUM.replace("max(abs(value))", "avg(value)")
_CURVE = """
select (step - ?) // ? as point, min(value) filter (isfinite(value)), max(value) filter (isfinite(value)),
  min(step) filter (not isfinite(value))
from rows where hook = ? and target = ? and name = ? and value is not null and step between ? and ?
group by point order by point
"""
_HISTOGRAMS = """
with asked as (
  select unnest(?::int[]) as first_place, unnest(?::int[]) as end_place, unnest(?::int[]) as line
), flat as (
  select line, step, generate_subscripts(values, 1) as bin, unnest(values) as count
  from rows join places using (target) join asked on place >= first_place and place < end_place
  where hook = ? and values is not null
)
select line, step, list(total order by bin) from (
  select line, step, bin, least(coalesce(sum(count) filter (isfinite(count)), 0), 1e300) as total from flat group by all
) group by all order by line, step
"""
_NUMBERS = """
select hook, name, count(*), count(*) filter (not isfinite(value)), min(value) filter (isfinite(value)),
  max(value) filter (isfinite(value)), avg(value) filter (isfinite(value)), last(value order by step), max(step)
from rows where target = ? and value is not null and hook != 'tenterhook' group by all order by all
"""


#: number of new parts that are read before new steps are announced to the page
MOST_AT_ONCE = 8
#: seconds between two looks at what is being loaded
WAIT = 0.05
#: seconds before a surface is read that no page waits for, so that the first picture is drawn before
PAUSE = 1.0


class RunData:
    """The data of one run folder, which may be written at the same time.

    Several threads may call it. Each call raises a StoreError if the folder cannot be read.

    Args:
        id: The id of the run, which no other open run has.
        folder: The run folder.
        surfaces: Where the run keeps its surfaces. Open runs share it, so that their memory together is limited.
    """

    def __init__(self, id: str, folder: Path, surfaces: Surfaces | None = None) -> None:
        self.id = id
        self.folder = folder
        self._run = open_run(folder)
        self._contents = Contents(self._run.folders[0], self._run.layers)
        self._contents.list_parts()
        self._contents.read_ends()
        self._pyramids = Pyramids(self._contents)
        #: guards the contents and the surfaces
        self._lock = threading.RLock()
        self._surfaces = surfaces or Surfaces()
        self._loading: dict[tuple[str, str], Future[Surface]] = {}
        #: set if a page waits for a surface
        self._needed = threading.Event()
        self._loader = ThreadPoolExecutor(2, "tenterhook: read a run")
        #: guards the connection to DuckDB, and the table of places that it has
        self._querying = threading.Lock()
        self._named: list[str] = []
        self._loader.submit(self.read_rest)

    # -- what the run is ---------------------------------------------------------------------------------------------

    def head(self) -> RunHead:
        """Return what identifies the run."""
        return head_of(self.id, self.folder)

    @property
    def last(self) -> int:
        """Return the last step that was read."""
        return self._contents.written.last

    def read_rest(self) -> None:
        """Read what the parts contain that were not read when the run was opened."""
        for part in self._contents.unread():
            while self._loading:  # what a page waits for comes first
                time.sleep(WAIT)
            self._read_part(part)

    def update(self) -> None:
        """Read what was written since the last call."""
        with self._querying:
            self._run.refresh()
        with self._lock:
            self._contents.list_parts()
            new = self._contents.unread()[-MOST_AT_ONCE:]
        for part in new:
            self._read_part(part)

    def _read_part(self, part: Part) -> None:
        scan = self._contents.scan(part)  # without the lock, because a page waits for it
        with self._lock:
            self._contents.add([scan] if scan is not None else [])

    def revision(self) -> str:
        """Return a text that changes if anything but the last step changes."""
        with self._lock:
            about = [str(self._contents.size), str(is_held(str(self.folder)))]
        for name in sorted(name for name in Folder(self.folder).names() if name.endswith(".json")):
            stat = (self.folder / name).stat()
            about.append(f"{name} {stat.st_mtime_ns} {stat.st_size}")
        return hashlib.blake2b("\n".join(about).encode(), digest_size=8).hexdigest()

    def summary(self) -> RunSummary:
        """Return everything about the run but its numbers."""
        with self._lock:
            run, contents = self._run, self._contents
            ledger, verdicts, findings = run.ledger, run.verdicts, run.findings
            flights = list(_flights(self.folder))
            points = {str(entry["hook"]): str(entry["at"]) for entry in ledger if "hook" in entry and "at" in entry}
            points = {**points, **_points(run.plan)}
            live = is_held(str(self.folder))
            names = Folder(self.folder).names()
            tone, sentence = sentence_of(
                contents, verdicts, findings, flights, live=live, watched=VERDICTS in names, closed=LEDGER in names
            )
            return RunSummary(
                **msgspec.structs.asdict(head_of(self.id, self.folder)),
                revision=self.revision(),
                first=contents.written.first,
                last=contents.written.last,
                sentence=sentence,
                tone=tone,
                targets=contents.targets.names,
                types={layer.name: layer.type for layer in run.layers},
                series=[
                    Series(hook, name, points.get(hook), contents.ranges(hook, name)) for hook, name in contents.single
                ],
                histograms=[Histograms(hook, contents.ranges(hook)) for hook in contents.lists],
                verdicts=[asdict(one) for one in verdicts],
                findings=findings,
                pages=pages_about([*(one.code for one in verdicts), *(one.get("code") for one in findings)]),
                ledger=ledger,
                flights=flights,
                plan=_plan(run.plan),
                dropped=contents.dropped,
            )

    # -- numbers -----------------------------------------------------------------------------------------------------

    def matrix(self, request: MatrixRequest) -> NDArray[np.float32]:
        """Return one number by rows of targets and columns of steps.

        NaN means that nothing is recorded, and infinity that a value is not finite.
        """
        self._check(request.problem(len(self._contents.targets.names)))
        return self.cells(request)

    def cells(self, request: MatrixRequest) -> NDArray[np.float32]:
        """Do as `matrix`, for a request of any size."""
        surface = self._surface(request.hook, request.name, wait=False)
        found = surface.matrix(request) if surface is not None and request.of == "maximum" else None
        if found is None:
            with self._lock:
                found = self._pyramids.matrix(request)
        if found is None and surface is None and request.of == "maximum":
            surface = self._surface(request.hook, request.name, wait=True)
            found = surface.matrix(request) if surface is not None else None
        return found if found is not None else self._query_cells(request)

    def _query_cells(self, request: MatrixRequest) -> NDArray[np.float32]:
        """Read the rows that a request needs."""
        import numpy as np

        first, each, columns = request.first, request.each, request.columns
        with self._querying:
            self._name_places()
            found = self._run.fetch_table(
                _MAXIMUM if request.of == "maximum" else _MEAN,
                *_lines(request.rows), columns, first, each, request.hook, request.name, first, first + each * columns,
            )  # fmt: skip
        cells = np.full(len(request.rows) * columns, np.nan, np.float32)
        values = found["value"].to_numpy(zero_copy_only=False).astype(np.float32)
        bad = found["bad"].to_numpy(zero_copy_only=False).astype(bool)
        cells[found["cell"].to_numpy()] = np.where(bad, np.float32(np.inf), values)
        return cells

    def _surface(self, hook: str, name: str, *, wait: bool) -> Surface | None:
        """Return the surface of a number, with everything that was recorded so far.

        If there is none yet, start to read it on a thread. Return None if `wait` is False.
        """
        key = (hook, name)
        with self._lock:
            surface = self._surfaces.get((self.id, *key))
            if surface is None or not surface.fits(self._contents):
                surface = None
                if key not in self._loading:
                    fresh = Surface(self._run.folders[0], self._contents, hook, name)
                    self._loading[key] = self._loader.submit(self._load, key, fresh)
                loading = self._loading[key]
        if surface is not None:
            surface.read()
            return surface
        if not wait:
            return None
        self._needed.set()
        return loading.result()

    def _load(self, key: tuple[str, str], surface: Surface) -> Surface:
        """Read a surface, and make it available."""
        try:
            self._needed.wait(PAUSE)
            surface.read()
            self._surfaces.put((self.id, *key), surface)
        finally:
            with self._lock:
                del self._loading[key]
                self._needed.clear()
        return surface

    def curve(self, request: CurveRequest) -> Curve:
        """Return one number of one target by step. A point covers several steps if there are too many."""
        written, targets = self._contents.written, self._contents.targets
        self._check(request.problem(len(targets.names)))
        first, last = max(request.first, written.first), min(request.last, written.last)
        if first > last:
            return Curve([], [], [], [])
        target = targets.names[request.target]
        points = min(request.points, last - first + 1)
        surface = self._surface(request.hook, request.name, wait=False)
        if surface is not None and surface.targets is not targets:  # a thread added targets in the meantime
            surface = None
        found = None
        if surface is not None and (surface.width == 1 or 2 * (last - first + 1) >= surface.width * points):
            found = surface.curve(request.target, first, last)
        if found is None:
            with self._lock:
                found = self._pyramids.curve(request.hook, request.name, target, first, last, points)
        if found is not None:
            return _thinned(*found, first=first, last=last, points=points)
        each = math.ceil((last - first + 1) / points)
        with self._querying:
            rows = self._run.fetch(_CURVE, first, each, request.hook, target, request.name, first, last)
        return Curve(
            [first + row[0] * each for row in rows],
            [finite(row[1]) for row in rows],
            [finite(row[2]) for row in rows],
            [row[3] for row in rows if row[3] is not None],
        )

    def histogram(self, hook: str, places: Range) -> Histogram:
        """Return the counts that a hook recorded, by step, summed over a range of targets."""
        count = len(self._contents.targets.names)
        self._check(None if 0 <= places[0] < places[1] <= count else "there are no such targets")
        return self.histograms(hook, [places])[0]

    def histograms(self, hook: str, ranges: list[Range]) -> list[Histogram]:
        """Return the counts that a hook recorded, by step, summed over each range of targets."""
        with self._querying:
            self._name_places()
            rows = self._run.fetch(_HISTOGRAMS, *_lines(ranges), hook)
        bins = max((len(counts) for _, _, counts in rows), default=0)
        # Another list of numbers has no edges that are known, and may be so long that powers of two overflow.
        powers = bins == BINS
        edges = [2.0 ** (LOWEST_EXPONENT + bin) if powers and bin else float(bin) for bin in range(bins)]
        found = [Histogram([], [], edges) for _ in ranges]
        for line, step, counts in rows:
            found[line].steps.append(step)
            found[line].counts.append(counts)
        return found

    def numbers(self, target: int) -> list[TargetNumber]:
        """Return a summary of each number that was recorded for a target."""
        targets = self._contents.targets.names
        self._check(None if 0 <= target < len(targets) else "there is no such target")
        with self._querying:
            rows = self._run.fetch(_NUMBERS, targets[target])
        return [
            TargetNumber(hook, name, count, bad, finite(least), finite(most), finite(mean), finite(last), step)
            for hook, name, count, bad, least, most, mean, last, step in rows
        ]

    def _check(self, problem: str | None) -> None:
        if problem is not None:
            raise StoreError(f"the request does not fit the run {self.id}: {problem}", remedy="load the page again")

    def _name_places(self) -> None:
        """Let queries refer to targets by their place."""
        targets = self._contents.targets.names
        query = (
            "create or replace temp table places as select unnest(?::varchar[]) as target, unnest(?::int[]) as place"
        )
        self._run.fetch(query, targets, list(range(len(targets))))


def _thinned(
    steps: NDArray[np.int64], low: NDArray[np.float32], high: NDArray[np.float32], *, first: int, last: int, points: int
) -> Curve:
    """Return at most so many points of a curve."""
    import numpy as np

    bad = np.isinf(high) | np.isinf(low)
    steps = np.maximum(steps, first)  # a value of several steps may begin before
    each = math.ceil((last - first + 1) / points)
    at = (steps - first) // each
    starts = np.flatnonzero(np.diff(at, prepend=-1))
    if not len(starts):
        return Curve([], [], [], [])
    below = np.fmin.reduceat(np.where(bad, np.nan, low), starts)
    above = np.fmax.reduceat(np.where(bad, np.nan, high), starts)
    # A point of several steps is at its first step.
    shown = first + at[starts] * each if each > 1 else steps[starts]
    wrong = steps[bad]
    return Curve(
        shown.tolist(),
        [finite(float(f"{one:.7g}")) for one in below],
        [finite(float(f"{one:.7g}")) for one in above],
        wrong[np.flatnonzero(np.diff((wrong - first) // each, prepend=-1))].tolist(),
    )


def head_of(id: str, folder: Path) -> RunHead:
    """Return what identifies a run, without opening it."""
    return RunHead(id=id, title=folder.resolve().name, path=str(folder), live=is_held(str(folder)))


def _lines(rows: list[Range]) -> tuple[list[int], list[int], list[int]]:
    """Return the start, the end and the number of each range."""
    return [start for start, _ in rows], [end for _, end in rows], list(range(len(rows)))


def _points(plan: str | None) -> dict[str, str]:
    """Return the point of each hook in a plan."""
    try:
        return {hook.id: hook.at for hook in Plan.from_json(plan)} if plan else {}
    except (PlanError, PlanFileError):
        return {}


def _plan(plan: str | None) -> dict[str, str | None] | None:
    if plan is None:
        return None
    try:
        digest = Plan.from_json(plan).digest
    except (PlanError, PlanFileError):  # the plan contains functions, which a file cannot store
        digest = None
    return {"text": plan, "digest": digest}


def _flights(folder: Path) -> list[dict[str, Any]]:
    """Return the reports of the flight recorders of a run."""
    found, name, size = [], "flight.json", 0
    for below in folders_in(folder / "flights") if not (folder / "flights").is_symlink() else ():
        inside = Folder(below)
        if name in inside.names():
            text = inside.read(name)
            size += len(text)
            if size > inside.limits.text_bytes:
                raise StoreError(
                    f"the flight reports in {folder} have more than {inside.limits.text_bytes:,} bytes",
                    remedy="move some of the folders in `flights` out of the run folder",
                )
            found.append(msgspec.to_builtins(read_json(name, text, FlightFile)))
    return found
