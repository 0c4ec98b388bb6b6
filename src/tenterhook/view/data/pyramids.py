"""Answer requests from the summaries in the parts of a run, without reading their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenterhook.record.run_folder.part import Part
from tenterhook.record.run_folder.pyramid import block_of, read_pyramid
from tenterhook.view.data.contents import Contents
from tenterhook.view.data.messages import MatrixRequest, Range

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(slots=True)
class _Cells:
    """The cells of one part for one number: first steps, blocks, and values."""

    step: NDArray[np.int64]
    block: NDArray[np.int64]
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    mean: NDArray[np.float32]
    count: NDArray[np.int64]


@dataclass(slots=True)
class _Summary:
    """The decoded summary of a part."""

    width: int
    blocks: list[str]
    series: dict[tuple[str, str], _Cells]


class Pyramids:
    """The summaries of the parts of a run.

    Args:
        contents: What the run contains.
    """

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._known: dict[str, _Summary | None] = {}
        self._targets: list[str] = []
        self._ranges: dict[str, Range] = {}

    def matrix(self, request: MatrixRequest) -> NDArray[np.float32] | None:
        """Answer a request, or return None if the summaries are not detailed enough."""
        import numpy as np

        last = request.first + request.each * request.columns
        parts = self._between(request.first, last - 1, request.each)
        if parts is None:
            return None
        blocks: list[str] = []
        rows = np.zeros(0, np.int64)
        out = np.full(len(request.rows) * request.columns, np.nan, np.float32)
        sums, counts = np.zeros(len(out)), np.zeros(len(out))
        for summary in parts:
            cells = summary.series.get((request.hook, request.name))
            if cells is None:
                continue
            if summary.blocks != blocks:  # most parts have the same blocks
                blocks = summary.blocks
                found = self._rows_of(blocks, request.rows)
                if found is None:
                    return None
                rows = found
            row, column = rows[cells.block], (cells.step - request.first) // request.each
            there = (row >= 0) & (column >= 0) & (column < request.columns)
            at = row[there] * request.columns + column[there]
            if request.of == "mean":
                value = np.where(np.isinf(cells.high), np.inf, cells.mean)[there]
                np.add.at(sums, at, value * cells.count[there].clip(1))
                np.add.at(counts, at, cells.count[there].clip(1))
            else:
                np.fmax.at(out, at, np.fmax(np.abs(cells.low), np.abs(cells.high))[there])
        if request.of == "mean":
            there = counts > 0
            out[there] = sums[there] / counts[there]
        return out

    def _rows_of(self, blocks: list[str], rows: list[Range]) -> NDArray[np.int64] | None:
        """Return the row that each block is in, or -1. Return None if a row has only a part of a block."""
        import numpy as np

        ranges = self._block_ranges()
        starts, ends = np.array(rows, np.int64).T
        order = np.argsort(starts, kind="stable")
        first, last = starts[order], ends[order]
        if (last[:-1] > first[1:]).any():
            return None  # a block would be in several rows
        start, end = np.array([ranges.get(block, (-1, -1)) for block in blocks], np.int64).reshape(-1, 2).T
        row = np.searchsorted(last, start, side="right")
        touched = np.searchsorted(first, end, side="left") - row
        inside = np.append(first, 0)[row] <= start
        inside &= end <= np.append(last, 0)[row]
        if ((touched > 1) | ((touched == 1) & ~inside)).any():
            return None
        return np.where(touched == 1, np.append(order, 0)[row], -1)

    def curve(
        self, hook: str, name: str, target: str, first: int, last: int, points: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]] | None:
        """Return the first step, the smallest and the largest value of each cell of a target that is a block."""
        import numpy as np

        start, end = self._block_ranges().get(target, (0, 0))
        if end - start != 1:
            return None  # the block has other targets, too
        parts = self._between(first, last, max(1, 2 * (last - first + 1) // points))
        if parts is None:
            return None
        found: list[tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]] = []
        for summary in parts:
            cells = summary.series.get((hook, name))
            if cells is not None and target in summary.blocks:
                mine = (
                    (cells.block == summary.blocks.index(target))
                    & (cells.step >= first - summary.width)
                    & (cells.step <= last)
                )
                found.append((cells.step[mine], cells.low[mine], cells.high[mine]))
        if not found:
            return None
        steps, low, high = (np.concatenate(column) for column in zip(*found, strict=True))
        order = np.argsort(steps, kind="stable")
        return steps[order], low[order], high[order]

    def _between(self, first: int, last: int, width: int) -> list[_Summary] | None:
        """Return the summaries of the parts with some steps, or None if one is missing or wider than `width`."""
        found = []
        written = self._contents.written
        for part in written.parts:
            limit = written.limits[part.name]
            if part.last < first or part.first > last or (limit is not None and part.first >= limit):
                continue
            summary = self._summary(part)
            if (
                summary is None
                or summary.width > width
                or width % summary.width
                or (limit is not None and part.last >= limit)
            ):
                return None
            found.append(summary)
        return found

    def _summary(self, part: Part) -> _Summary | None:
        if part.name not in self._known:
            self._known[part.name] = _decoded(part)
        return self._known[part.name]

    def _block_ranges(self) -> dict[str, Range]:
        """Return the targets of each block."""
        targets = self._contents.targets.names
        if targets is not self._targets:
            ranges: dict[str, Range] = {}
            for place, name in enumerate(targets):
                block = block_of(name)
                ranges[block] = (ranges.get(block, (place, place))[0], place + 1)
            self._targets, self._ranges = targets, ranges
        return self._ranges


def _decoded(part: Part) -> _Summary | None:
    """Decode the summary of a part. Return None if it has none, or if it is not valid."""
    import numpy as np

    read = read_pyramid(part.pyramid, part.rows) if part.pyramid else None
    if read is None:
        return None
    first, made = read
    series, block, bucket, count = (
        np.frombuffer(column, np.int32).astype(np.int64)
        for column in (made.at_series, made.at_block, made.at_bucket, made.count)
    )
    low, high, mean = (np.frombuffer(column, np.float32) for column in (made.low, made.high, made.mean))
    # The first range may begin before the part.
    step = np.maximum((bucket + first) * made.width, part.first)
    found: dict[tuple[str, str], _Cells] = {}
    for place, key in enumerate(made.series):
        mine = series == place
        found[key] = _Cells(step[mine], block[mine], low[mine], high[mine], mean[mine], count[mine])
    return _Summary(made.width, made.blocks, found)
