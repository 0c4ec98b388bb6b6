"""List what a run contains: its steps, its targets, and the numbers that were recorded for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tenterhook.errors import StoreError
from tenterhook.record import TRAINING, Folder, Layer
from tenterhook.record.run_folder.part import Part, superseded_from
from tenterhook.view.data.messages import Range, ranges_of
from tenterhook.view.data.model_order import model_order

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

#: number of rows of a part that are read together; with more of them, the arrays take much memory
ROWS = 1 << 19
#: order in which the numbers are listed; a viewer begins with the first one
NAMES = ("norm", "rms", "ratio", "score", "change", "abs_max", "zeros", "nonfinite", "mean")
#: hook of the rows in which the recorder counts what it dropped
RECORDER = "tenterhook"


@dataclass(slots=True)
class _Found:
    """The targets of one number."""

    single: bool
    targets: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Scan:
    """The curves of a part: its words, and the places of the words of each curve, as one sorted number."""

    part: str
    hooks: pa.Array
    targets: pa.Array
    names: pa.Array
    keys: NDArray[np.int64]

    def same_as(self, other: Scan) -> bool:
        """Return True if the other part has the same curves."""
        import numpy as np

        same = all(
            mine.equals(theirs)
            for mine, theirs in ((self.hooks, other.hooks), (self.targets, other.targets), (self.names, other.names))
        )
        return same and np.array_equal(self.keys, other.keys)


@dataclass(frozen=True, slots=True)
class Written:
    """The parts of a run at one moment."""

    parts: list[Part]
    #: for each part, the first step that a later attempt recorded again, or None
    limits: dict[str, int | None]

    @property
    def first(self) -> int:
        return min((part.first for part in self.parts), default=0)

    @property
    def last(self) -> int:
        """Return the last step."""
        ends = [
            part.last if (limit := self.limits[part.name]) is None else min(part.last, limit - 1) for part in self.parts
        ]
        return max(ends, default=-1)


@dataclass(frozen=True, slots=True)
class Targets:
    """The targets of a run in model order, and the place of each."""

    names: list[str]
    places: dict[str, int]

    def places_of(self, names: list[str]) -> NDArray[np.int64]:
        """Return the place of each name, or -1."""
        import numpy as np

        return np.array([self.places.get(name, -1) for name in names], np.int64)


class Contents:
    """The steps, targets and numbers of a run.

    While one thread adds what was written, others use `written` and `targets`. Each is replaced, never changed, so that
    a thread that takes it once has what belongs together.

    `read_ends` reads only the first and the last part, which usually have everything. `unread` lists the others.

    Args:
        folder: The run folder.
        layers: The modules in the order in which they ran.
    """

    def __init__(self, folder: Folder, layers: list[Layer]) -> None:
        self._folder = folder
        self._layers = layers
        self._read: set[str] = set()
        #: the part that was added last
        self._last: Scan | None = None
        self._found: dict[tuple[str, str], _Found] = {}
        self._ranges: dict[tuple[str, str | None], list[Range]] = {}
        self.written = Written([], {})
        self.targets = Targets([], {})
        #: number of rows that were dropped
        self.dropped = 0

    def list_parts(self) -> None:
        """List the parts again."""
        parts = self._folder.parts()
        self.written = Written(parts, superseded_from(parts))

    def read_ends(self) -> None:
        """Read what the first and the last part contain."""
        parts = self.written.parts
        self.read({part.name: part for part in (*parts[:1], *parts[-1:])}.values())

    def unread(self) -> list[Part]:
        """Return the parts that were not read yet. A merged part has nothing but what the parts before it had."""
        return [
            part
            for part in self.written.parts
            if part.name not in self._read and not self._read.issuperset(part.replaces or [""])
        ]

    def read(self, parts: Iterable[Part]) -> None:
        """Read what some parts contain."""
        self.add(scan for part in parts if (scan := self.scan(part)) is not None)

    def scan(self, part: Part) -> Scan | None:
        """Return what a part contains, or None if it was merged in the meantime. This method changes nothing."""
        import numpy as np

        try:
            table = self._folder.table(part.name, ["hook", "target", "name"])
        except FileNotFoundError:
            return None
        if any(table[column].null_count for column in table.column_names):
            raise StoreError(f"some rows of {part.name} have no hook, target or name", remedy="move the part away")
        words = [table[column].chunk(0).dictionary for column in table.column_names]  # all chunks have the same words
        hooks, targets, names = words
        found = []
        for some in table.to_batches(max_chunksize=ROWS):
            hook, target, name = (column.indices.to_numpy(zero_copy_only=False) for column in some.columns)
            key = (hook.astype(np.int64) * len(names) + name) * len(targets) + target
            starts = np.flatnonzero(key[1:] != key[:-1]) + 1  # equal rows are adjacent
            found += [key[:1], key[starts]]
        return Scan(part.name, hooks, targets, names, np.unique(np.concatenate(found or [np.zeros(0, np.int64)])))

    def add(self, scans: Iterable[Scan]) -> None:
        """Add what some parts contain."""
        size = self.size
        for scan in scans:
            self._check_size(len(scan.keys))  # before Python texts are made of the names
            if self._last is None or not scan.same_as(self._last):  # most parts have the same curves
                self._add(scan)
                self._last = scan
            if RECORDER in scan.hooks.to_pylist():
                self._count_dropped(scan.part)
            self._read.add(scan.part)
        if self.size == size:
            return
        self._check_size(self.size)
        # Sorting takes long for many targets, so the targets become visible all at once.
        targets = model_order({name for one in self._found.values() for name in one.targets}, self._layers)
        self.targets = Targets(targets, {name: place for place, name in enumerate(targets)})
        self._ranges = {}

    def _check_size(self, curves: int) -> None:
        limit = self._folder.limits.series
        if curves > limit:
            raise StoreError(
                f"the run has {curves:,} different curves; the limit is {limit:,}",
                remedy="read it with th.open_run instead of a report",
            )

    def _add(self, scan: Scan) -> None:
        """Add the numbers and targets of one part."""
        import numpy as np

        hooks, targets, names = (words.to_pylist() for words in (scan.hooks, scan.targets, scan.names))
        size = sum(len(word) for some in (hooks, targets, names) for word in some)
        if size > self._folder.limits.table_bytes:
            raise StoreError(
                f"the names in {scan.part} have {size:,} characters; the limit is {self._folder.limits.table_bytes:,}",
                remedy="if you trust the folder, pass limits=th.ReadLimits(table_bytes=...) to th.open_run",
            )
        series, places = np.divmod(scan.keys, max(1, len(targets)))
        for one in np.unique(series).tolist():
            hook, name = hooks[one // len(names)], names[one % len(names)]
            if hook == RECORDER:
                continue
            found = self._found.get((hook, name))
            if found is None:
                found = self._found[hook, name] = _Found(self._is_single(scan.part, hook, name))
            found.targets.update(targets[place] for place in places[series == one].tolist())

    def _is_single(self, part: str, hook: str, name: str) -> bool:
        """Return True if a number is a single number, and not a list."""
        table = self._folder.table(part, ["hook", "name", "value"])
        mine = _are(table["hook"], hook) & _are(table["name"], name)
        return bool((mine & table["value"].is_valid().to_numpy()).any())

    def _count_dropped(self, part: str) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        table = self._folder.table(part, ["hook", "value"])
        values = table["value"].filter(pa.array(_are(table["hook"], RECORDER)))
        values = values.filter(pc.is_finite(values))
        self.dropped += int(pc.sum(values).as_py() or 0)

    @property
    def size(self) -> int:
        """Return the number of curves."""
        return sum(len(one.targets) for one in self._found.values())

    @property
    def single(self) -> list[tuple[str, str]]:
        """Return the hook and name of each single number, the most useful ones first."""
        rank = {name: number for number, name in enumerate(NAMES)}
        keys = [key for key, one in self._found.items() if one.single]
        # The norms of every step come first, because hooks may record fewer steps.
        return sorted(keys, key=lambda k: (k != (TRAINING, "norm"), rank.get(k[1], len(rank)), k[0] != "grads", k))

    @property
    def lists(self) -> list[str]:
        """Return the hooks that recorded lists of numbers."""
        return sorted({hook for (hook, _), one in self._found.items() if not one.single})

    def ranges(self, hook: str, name: str | None = None) -> list[Range]:
        """Return the targets of a number, or of the lists of a hook if `name` is None."""
        if (hook, name) not in self._ranges:
            found = [
                one
                for (of, called), one in self._found.items()
                if of == hook and (called == name if name is not None else not one.single)
            ]
            places = sorted({self.targets.places[target] for one in found for target in one.targets})
            self._ranges[hook, name] = ranges_of(places)
        return self._ranges[hook, name]


def _are(column: pa.ChunkedArray, word: str) -> NDArray[np.bool_]:
    """Return which rows have a word. Arrow would write the words of all rows out, and a word may be long."""
    codes = column.combine_chunks()
    same: NDArray[np.bool_] = codes.indices.to_numpy(zero_copy_only=False) == codes.dictionary.index(word).as_py()
    return same
