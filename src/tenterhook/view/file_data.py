"""Collect the data of runs for a page that is one file, in a form that is small enough for a file."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from tenterhook.diff import Difference
from tenterhook.view.data.messages import CurveRequest, Histogram, MatrixRequest, Range, RunSummary, Series
from tenterhook.view.data.run_data import RunData

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: maximum number of cells of all runs, columns of a matrix, points of a curve, blocks and steps of histograms
MAX_CELLS, MAX_COLUMNS, MAX_POINTS, MAX_BLOCKS, MAX_STEPS = 5_000_000, 400, 1000, 64, 48
#: a series of so few targets also has curves, which keep signs and precision
FEW = 2
#: cell codes: nothing recorded, not finite, zero; FIRST and higher codes encode a logarithm
MISSING, NONFINITE, ZERO, FIRST, TOP = 0, 1, 2, 3, 65535


class FileMatrix(msgspec.Struct):
    """Holds the largest magnitudes of one number in two bytes per cell, with a row for each target of the ranges."""

    hook: str
    name: str
    first: int
    each: int
    columns: int
    ranges: list[Range]
    low: float
    high: float
    cells: str


class FileCurve(msgspec.Struct):
    """Holds the curve of one number of one target."""

    hook: str
    name: str
    target: int
    steps: list[int]
    low: list[float | None]
    high: list[float | None]
    nonfinite: list[int]


class FileBlock(msgspec.Struct):
    """Holds the histograms of a range of targets."""

    range: Range
    steps: list[int]
    counts: list[list[float]]


class FileHistograms(msgspec.Struct):
    """Holds the histograms of one hook by block."""

    hook: str
    edges: list[float]
    blocks: list[FileBlock]


class FileRun(RunSummary, kw_only=True):
    """Holds a run with its numbers."""

    matrices: list[FileMatrix]
    curves: list[FileCurve]
    histogram_data: list[FileHistograms] = msgspec.field(name="histogramData")


class FileDifference(msgspec.Struct):
    """Holds where two of the runs part."""

    a: str
    b: str
    difference: Difference


class FileData(msgspec.Struct):
    """Holds everything that the page shows."""

    runs: list[FileRun]
    differences: list[FileDifference]


def file_run(run: RunData, max_cells: int) -> FileRun:
    """Return the data of one run.

    Args:
        run: The run.
        max_cells: The largest number of cells of all matrices. The last series are left out if there are more.
    """
    summary = run.summary()
    matrices, curves = [], []
    for series in summary.series:
        targets = sum(end - start for start, end in series.ranges)
        columns = min(MAX_COLUMNS, summary.last - summary.first + 1, max_cells // max(1, targets))
        if columns < 1:
            continue
        matrices.append(_matrix(run, summary, series, columns))
        max_cells -= targets * columns
        if targets <= FEW:
            curves += [
                _curve(run, summary, series, target) for start, end in series.ranges for target in range(start, end)
            ]
    return FileRun(
        **msgspec.structs.asdict(summary),
        matrices=matrices,
        curves=curves,
        histogram_data=[_histograms(run, one.hook, summary.targets) for one in summary.histograms],
    )


def _matrix(run: RunData, summary: RunSummary, series: Series, columns: int) -> FileMatrix:
    # The page asks for columns that begin at a multiple of a power of two.
    each = 1 << (math.ceil((summary.last - summary.first + 1) / columns) - 1).bit_length()
    first = summary.first // each * each
    columns = (summary.last - first) // each + 1
    rows = [(place, place + 1) for start, end in series.ranges for place in range(start, end)]
    asked = MatrixRequest(
        run=run.id, hook=series.hook, name=series.name, rows=rows, first=first, each=each, columns=columns
    )
    low, high, cells = encode(run.cells(asked))
    text = base64.b64encode(cells).decode()
    return FileMatrix(series.hook, series.name, first, each, columns, series.ranges, low, high, text)


def encode(cells: NDArray[np.float32]) -> tuple[float, float, bytes]:
    """Return the smallest and the largest magnitude above zero, and two bytes for each cell.

    A code c from FIRST on stands for low * (high / low) ** ((c - FIRST) / (TOP - FIRST)).
    """
    import numpy as np

    values = np.abs(cells.astype(np.float64))
    there = values[np.isfinite(values) & (values > 0)]
    low, high = (float(there.min()), float(there.max())) if len(there) else (1.0, 1.0)
    code = np.full(len(values), MISSING, np.int64)
    code[np.isinf(values)] = NONFINITE
    code[values == 0] = ZERO
    positive = np.isfinite(values) & (values > 0)
    span = math.log(high) - math.log(low) or 1.0
    code[positive] = FIRST + np.round((np.log(values[positive]) - math.log(low)) / span * (TOP - FIRST))
    return low, high, code.astype("<u2").tobytes()


def _curve(run: RunData, summary: RunSummary, series: Series, target: int) -> FileCurve:
    asked = CurveRequest(
        run=run.id, hook=series.hook, name=series.name, target=target, first=summary.first, last=summary.last,
        points=MAX_POINTS,
    )  # fmt: skip
    found = run.curve(asked)
    return FileCurve(series.hook, series.name, target, found.steps, found.low, found.high, found.nonfinite)


def _histograms(run: RunData, hook: str, targets: list[str]) -> FileHistograms:
    blocks = [(0, len(targets)), *blocks_of(targets, MAX_BLOCKS)]
    found = run.histograms(hook, blocks)
    return FileHistograms(hook, found[0].edges, [_thinned(at, one) for at, one in zip(blocks, found) if one.steps])


def _thinned(at: Range, histogram: Histogram) -> FileBlock:
    """Leave out steps, at equal distances, if there are too many."""
    every = math.ceil(len(histogram.steps) / MAX_STEPS)
    return FileBlock(at, histogram.steps[::every], histogram.counts[::every])


def blocks_of(targets: list[str], most: int) -> list[Range]:
    """Return the ranges of targets with an equal beginning, at the greatest depth with at most so many ranges."""
    best: list[Range] = []
    for depth in range(1, 9):
        beginnings = [".".join(name.split(".", depth)[:depth]) for name in targets]
        starts = [place for place, name in enumerate(beginnings) if not place or beginnings[place - 1] != name]
        if len(starts) > most:
            break
        best = list(zip(starts, [*starts[1:], len(targets)]))
    return best


def file_data(runs: Iterable[FileRun], differences: list[FileDifference]) -> bytes:
    """Return the data as JSON."""
    return msgspec.json.encode(FileData(list(runs), differences))
