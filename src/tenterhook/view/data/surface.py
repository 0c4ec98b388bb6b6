"""Hold one number of all targets and steps in memory, so that a page can zoom and move without reading files."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from tenterhook.record import Folder
from tenterhook.record.run_folder.part import Part
from tenterhook.view.data.contents import ROWS, Contents
from tenterhook.view.data.messages import MatrixRequest

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

#: maximum number of cells of a surface; a cell takes 4 or 8 bytes
MAX_CELLS = 60_000_000
#: a surface has at most so many columns, because no screen has more
MAX_COLUMNS = 2048
#: number of threads that read the parts of a surface
READERS = 2


class Surface:
    """The smallest and the largest value of a number, by target and range of steps.

    `high` is infinite if a value is not finite, and NaN if nothing is recorded.

    Args:
        folder: The run folder.
        contents: What the run contains.
        hook: Id of the hook.
        name: Name of the number.
    """

    def __init__(self, folder: Folder, contents: Contents, hook: str, name: str) -> None:
        import numpy as np

        self._folder, self._contents = folder, contents
        self.hook, self.name = hook, name
        #: the targets when the surface was made; with other targets, places have another meaning
        self.targets = contents.targets
        self._line = np.full(len(self.targets.names), -1, np.int64)
        places = [place for start, end in contents.ranges(hook, name) for place in range(start, end)]
        self._line[places] = np.arange(len(places))
        self._lines = len(places)
        #: for each part that was read, the first step whose rows were left out
        self._limits: dict[str, int | None] = {}
        self._lock = threading.Lock()
        #: the targets of the part that was read last, and their lines
        self._words: pa.Array | None = None
        self._line_of_word = np.zeros(0, np.int64)
        #: number of steps in a column; the first column begins at a multiple of it
        self.width = 1
        first, last = contents.written.first, contents.written.last
        columns = min(MAX_COLUMNS, max(1, MAX_CELLS // max(1, self._lines)))
        while last - first + 1 > self.width * columns:
            self.width *= 2
        self.first = first // self.width * self.width
        self._columns = -(-(last - self.first + 1) // self.width)
        self.low = np.full((self._lines, self._columns), np.nan, np.float32)
        #: the same array as `low` as long as no cell has two values
        self.high = self.low

    def fits(self, contents: Contents) -> bool:
        """Return False if a new surface is needed: the run was opened again, or has grown too much."""
        written, most = self._contents.written, self.first + self.width * max(self._columns, MAX_COLUMNS)
        same = all(self._limits.get(name, limit) == limit for name, limit in written.limits.items())
        return (
            same
            and contents is self._contents
            and self.targets is self._contents.targets
            and self.first <= written.first
            and written.last < most
        )

    @property
    def size(self) -> int:
        """Return the number of bytes in memory."""
        return self.low.nbytes * (1 if self.low is self.high else 2)

    def read(self) -> None:
        """Read the parts that were not read yet."""
        with self._lock:
            written = self._contents.written
            new = [part for part in written.parts if part.name not in self._limits]
            for part, table in self._tables(new):
                merged = part.replaces and self._limits.keys() >= set(part.replaces)
                if table is not None and not merged:
                    self._add(table, written.limits[part.name])
                if table is not None or merged:
                    self._limits[part.name] = written.limits[part.name]

    def _tables(self, parts: list[Part]) -> Iterator[tuple[Part, pa.Table | None]]:
        """Yield each part with its rows. Threads read the next parts while the caller uses one."""
        if len(parts) < READERS:  # as in most updates of a live run
            yield from ((part, self._table(part)) for part in parts)
            return
        with ThreadPoolExecutor(READERS, "tenterhook: read parts") as pool:
            reading: deque[tuple[Part, Future[pa.Table | None]]] = deque()
            for part in parts:
                reading.append((part, pool.submit(self._table, part)))
                if len(reading) > READERS:
                    first, table = reading.popleft()
                    yield first, table.result()
            yield from ((part, table.result()) for part, table in reading)

    def _table(self, part: Part) -> pa.Table | None:
        """Return the rows of a part, or None if it was merged in the meantime."""
        try:
            return self._folder.table(part.name, ["step", "hook", "target", "name", "value"])
        except FileNotFoundError:
            return None

    def _add(self, table: pa.Table, limit: int | None) -> None:
        """Add the values of one part, without the steps from `limit` on."""
        for some in table.to_batches(max_chunksize=ROWS):
            self._add_rows(some, limit)

    def _add_rows(self, table: pa.RecordBatch, limit: int | None) -> None:
        import numpy as np

        hooks, targets, names = (table[column] for column in ("hook", "target", "name"))
        words = hooks.dictionary.to_pylist(), names.dictionary.to_pylist()
        if self.hook not in words[0] or self.name not in words[1]:
            return
        mine = hooks.indices.to_numpy(zero_copy_only=False) == words[0].index(self.hook)
        mine &= names.indices.to_numpy(zero_copy_only=False) == words[1].index(self.name)
        value = table["value"].to_numpy(zero_copy_only=False)
        for column in ("value", "step"):
            mine &= table[column].is_valid().to_numpy(zero_copy_only=False)
        step = table["step"].fill_null(0).to_numpy()
        if limit is not None:
            mine &= step < limit
        if self._words is None or not self._words.equals(targets.dictionary):  # most parts have the same targets
            self._words = targets.dictionary
            self._line_of_word = self._line[self.targets.places_of(self._words.to_pylist())]
        at = self._line_of_word[targets.indices.to_numpy(zero_copy_only=False)[mine]]
        column, value = (step[mine] - self.first) // self.width, value[mine].astype(np.float32)
        there = at >= 0
        if not there.all():
            at, column, value = at[there], column[there], value[there]
        if len(at):
            self._grow(int(column.max()) + 1)
            self._put(at * self._columns + column, value)

    def _grow(self, columns: int) -> None:
        """Add columns for new steps."""
        import numpy as np

        if columns <= self._columns:
            return
        columns = max(columns, self._columns + self._columns // 4)
        one = self.low is self.high
        more = np.full((self._lines, columns - self._columns), np.nan, np.float32)
        self.low = np.hstack((self.low, more))
        self.high = self.low if one else np.hstack((self.high, more))
        self._columns = columns

    def _put(self, cells: NDArray[np.int64], values: NDArray[np.float32]) -> None:
        """Put values into cells. A cell that has a value already keeps the smallest and the largest one."""
        import numpy as np

        values = np.where(np.isfinite(values), values, np.float32(np.inf))
        low = self.low.reshape(-1)
        if self.low is self.high and np.isnan(low[cells]).all():
            low[cells] = values
            if (low[cells] == values).all():  # no cell has two values
                return
            low[cells] = np.nan
        if self.low is self.high:
            self.high = self.low.copy()
        np.fmin.at(low, cells, values)
        np.fmax.at(self.high.reshape(-1), cells, values)

    def matrix(self, request: MatrixRequest) -> NDArray[np.float32] | None:
        """Answer a request for the largest magnitudes, or return None if it asks for more detail than there is."""
        if request.each % self.width or (request.first - self.first) % self.width:
            return None
        with self._lock:
            return self._matrix(request)

    def _matrix(self, request: MatrixRequest) -> NDArray[np.float32]:
        import numpy as np

        each, start = request.each // self.width, (request.first - self.first) // self.width
        edges = np.clip(start + each * np.arange(request.columns + 1), 0, self._columns)
        out = np.full((len(request.rows), request.columns), np.nan, np.float32)
        if edges[0] == edges[-1]:
            return out.reshape(-1)
        full = np.flatnonzero(edges[1:] > edges[:-1])
        for row, (a, b) in enumerate(request.rows):
            lines = self._line[a:b]
            lines = lines[lines >= 0]
            if not len(lines):
                continue
            start_line, end_line = int(lines[0]), int(lines[-1]) + 1  # lines are in the order of places
            part = _magnitude(self.low, self.high, slice(start_line, end_line), slice(edges[0], edges[-1]))
            by_step = part[0] if len(part) == 1 else np.fmax.reduce(part, axis=0)
            out[row, full] = np.fmax.reduceat(by_step, edges[full] - edges[0])
        return out.reshape(-1)

    def curve(
        self, target: int, first: int, last: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
        """Return the first step, the smallest and the largest value of each column with a value."""
        import numpy as np

        line = int(self._line[target])
        if line < 0:
            return np.zeros(0, np.int64), np.zeros(0, np.float32), np.zeros(0, np.float32)
        start, end = max(0, (first - self.first) // self.width), max(0, (last - self.first) // self.width + 1)
        with self._lock:
            low, high = self.low[line, start:end], self.high[line, start:end]
            there = np.flatnonzero(~np.isnan(high))
            return self.first + (start + there) * self.width, low[there], high[there]


def _magnitude(
    low: NDArray[np.float32], high: NDArray[np.float32], lines: slice, columns: slice
) -> NDArray[np.float32]:
    import numpy as np

    if low is high:
        return np.abs(low[lines, columns])
    return np.fmax(np.abs(low[lines, columns]), np.abs(high[lines, columns]))
