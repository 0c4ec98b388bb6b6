"""Compare what the page asks for with a slow reading of the rows, however the rows are spread over parts."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tenterhook as th
from tenterhook.errors import StoreError
from tenterhook.record import Batch, Folder, Row, StepTable
from tenterhook.view.data.contents import Contents
from tenterhook.view.data.finding_pages import pages_about
from tenterhook.view.data.messages import CurveRequest, MatrixRequest
from tenterhook.view.data.run_data import RunData
from tenterhook.view.data.surface import MAX_COLUMNS, Surface
from tenterhook.view.data.surfaces import Surfaces

ROOT = Path(__file__).parents[2]
Rows = list[Row]


def write(folder: Path, rows: Rows, steps_per_part: int, *, merged: bool = False) -> None:
    """Write rows into parts with so many steps each."""
    store = th.Store(folder, linger=0)
    steps = sorted({row.step for row in rows})
    for start in range(0, len(steps), steps_per_part):
        some = steps[start : start + steps_per_part]
        store.write([Batch(step, 0, {}, [row for row in rows if row.step == step]) for step in some])
    if merged:
        store.close()


def made_rows(seed: int) -> Rows:
    """Return random rows: blocks with parameters, gaps, zeros, negative and non-finite values."""
    pick = random.Random(seed)
    targets = [".", "emb.weight"] + [
        f"blocks.{b}.{name}" for b in range(5) for name in ("fc.weight", "fc.bias", "norm")
    ]
    first, span = pick.choice([(0, 40), (1, 97), (1000, 300)])
    every = pick.choice([1, 1, 7])
    special = [math.nan, math.inf, -math.inf, 0.0]
    rows = []
    for step in range(first, first + span, every):
        for target in targets:
            if pick.random() < 0.05:
                continue
            value = pick.choice(special) if pick.random() < 0.02 else pick.gauss(0, 1) * 10 ** pick.randint(-3, 3)
            rows.append(Row(step, 0, "grads", target, "norm", value))
            if pick.random() < 0.1:
                rows.append(Row(step, 0, "grads", target, "norm", pick.gauss(0, 1), call=1, leaf=0))
            rows.append(Row(step, 0, "grads", target, "mean", pick.gauss(0, 1)))
        rows.append(Row(step, 0, "training", ".", "loss", pick.gauss(2, 0.1)))
    return rows


def slow_cell(values: list[float], of: str) -> float:
    """Return what a cell shows, from its values."""
    if not values:
        return math.nan
    if not all(map(math.isfinite, values)):
        return math.inf
    return max(map(abs, values)) if of == "maximum" else sum(values) / len(values)


@pytest.mark.parametrize("seed", range(12))
def test_cells_and_curves_are_those_of_the_rows(tmp_path: Path, seed: int):
    rows, pick = made_rows(seed), random.Random(seed)
    write(tmp_path / "run", rows, pick.choice([1, 9, 400]), merged=pick.random() < 0.5)
    run = RunData("run", tmp_path / "run")
    summary = run.summary()
    places = {name: place for place, name in enumerate(summary.targets)}
    assert (summary.first, summary.last) == (min(row.step for row in rows), max(row.step for row in rows))
    assert set(places) == {row.target for row in rows}
    for attempt in range(12):
        cuts = sorted(pick.sample(range(len(places) + 1), pick.randint(2, 6)))
        each = pick.choice([1, 2, 3, 8, 16, 64])
        asked = MatrixRequest(
            run="run", hook="grads", name=pick.choice(["norm", "mean"]), rows=list(pairwise(cuts)),
            first=summary.first + pick.choice([0, 0, -5, 8, 13]), each=each, columns=pick.randint(1, 60),
            of=pick.choice(["maximum", "mean"]),
        )  # fmt: skip
        cells = run.matrix(asked).reshape(len(asked.rows), asked.columns)
        found: dict[tuple[int, int], list[float]] = {}
        for row in rows:
            if (row.hook, row.name) == (asked.hook, asked.name):
                column = (row.step - asked.first) // each
                for line, (start, end) in enumerate(asked.rows):
                    if start <= places[row.target] < end and 0 <= column < asked.columns:
                        found.setdefault((line, column), []).append(float(row.value))  # type: ignore[arg-type]
        slow = [
            [slow_cell(found.get((r, c), []), asked.of) for c in range(asked.columns)] for r in range(len(asked.rows))
        ]
        np.testing.assert_allclose(
            cells, np.array(slow, np.float32), rtol=2e-5, atol=1e-6, err_msg=f"{attempt} {asked}"
        )
    for target in pick.sample(summary.targets, 4):
        points = pick.choice([5, 50, 4000])
        curve = run.curve(CurveRequest(run="run", hook="grads", name="norm", target=places[target], first=summary.first,
                                       last=summary.last, points=points))  # fmt: skip
        mine = [row for row in rows if (row.hook, row.name, row.target) == ("grads", "norm", target)]
        finite = [float(row.value) for row in mine if math.isfinite(float(row.value))]  # type: ignore[arg-type]
        assert min(low for low in curve.low if low is not None) == pytest.approx(min(finite), rel=1e-5)
        assert max(high for high in curve.high if high is not None) == pytest.approx(max(finite), rel=1e-5)
        assert len(curve.steps) <= points
        bad = {row.step for row in mine if not math.isfinite(float(row.value))}  # type: ignore[arg-type]
        assert set(curve.nonfinite) <= bad and bool(curve.nonfinite) == bool(bad)


def test_the_numbers_of_a_target_are_summarized(tmp_path: Path):
    values = [1.0, -2.0, math.nan, 4.0]
    write(tmp_path, [Row(step, 0, "h", "a.weight", "norm", value) for step, value in enumerate(values)], 2)
    (found,) = RunData("run", tmp_path).numbers(0)
    assert (found.count, found.nonfinite, found.minimum, found.maximum, found.mean) == (4, 1, -2.0, 4.0, 1.0)
    assert (found.last, found.last_step) == (4.0, 3)


def test_histograms_are_summed_over_targets(tmp_path: Path):
    counts = {"a.x": [1.0] * 64, "a.y": [2.0] * 64, "b": [5.0] * 64}
    for step in (0, 10):
        table = StepTable(
            step, list(counts), bytearray(b"\1\1\1"), lambda: {"bins": torch.tensor(list(counts.values()))},
            width=64, device=torch.device("cpu"),
        )  # fmt: skip
        th.Store(tmp_path, linger=0).write([Batch(step, 0, {"h": table})])
    run = RunData("run", tmp_path)
    found = run.histogram("h", (0, 2))
    assert (found.steps, found.counts) == ([0, 10], [[3.0] * 64] * 2)
    assert found.edges[:2] == [0.0, 2.0**-39] and len(found.edges) == 64


def test_lists_that_are_no_histogram_have_edges_that_are_places(tmp_path: Path):
    table = StepTable(
        0, ["a"], bytearray(b"\1"), lambda: {"list": torch.ones(1, 1500)}, width=1500, device=torch.device("cpu")
    )  # fmt: skip
    th.Store(tmp_path, linger=0).write([Batch(0, 0, {"h": table})])
    found = RunData("run", tmp_path).histogram("h", (0, 1))
    assert (found.counts, found.edges) == ([[1.0] * 1500], [float(place) for place in range(1500)])


def test_new_steps_are_read(tmp_path: Path):
    store = th.Store(tmp_path, linger=0)
    store.write([Batch(0, 0, {}, [Row(0, 0, "h", "a", "norm", 1.0)])])
    run = RunData("run", tmp_path)
    asked = MatrixRequest(run="run", hook="h", name="norm", rows=[(0, 1)], first=0, each=1, columns=4)
    assert run.matrix(asked).tolist()[0] == 1.0
    before = run.revision()
    store.write([Batch(1, 0, {}, [Row(1, 0, "h", "a", "norm", 2.0)])])
    run.update()
    assert (run.last, run.revision()) == (1, before)
    assert run.matrix(asked).tolist()[:2] == [1.0, 2.0]
    store.write([Batch(2, 0, {}, [Row(2, 0, "h", "b", "norm", 3.0)])])
    run.update()
    assert run.revision() != before and run.summary().targets == ["a", "b"]
    asked = MatrixRequest(run="run", hook="h", name="norm", rows=[(0, 2)], first=0, each=1, columns=4)
    assert run.matrix(asked).tolist()[:3] == [1.0, 2.0, 3.0]


def test_curves_that_only_parts_in_the_middle_have_are_found(tmp_path: Path):
    store = th.Store(tmp_path)
    for step, target in enumerate(("a", "a", "b", "c", "a", "a")):
        store.write([Batch(step, 0, {}, [Row(step, 0, "h", target, "norm", 1.0)])])
    store.close()
    data = RunData("run", tmp_path)
    data.read_rest()
    assert data.summary().targets == ["a", "b", "c"]


def test_steps_that_were_recorded_again_replace_the_earlier_ones(tmp_path: Path):
    def attempt(first: int, last: int, value: float) -> None:
        store = th.Store(tmp_path, linger=0)
        for step in range(first, last):
            store.write([Batch(step, 0, {}, [Row(step, 0, "h", "a", "norm", value)])])

    attempt(0, 6, 1.0)
    run = RunData("run", tmp_path)
    asked = MatrixRequest(run="run", hook="h", name="norm", rows=[(0, 1)], first=0, each=1, columns=8)
    assert run.matrix(asked).tolist()[:6] == [1.0] * 6
    attempt(3, 5, 2.0)
    run.update()
    assert run.last == 4
    np.testing.assert_array_equal(run.matrix(asked), np.array([1, 1, 1, 2, 2] + [math.nan] * 3, np.float32))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"rows": []}, "1 to 4096 rows"),
        ({"rows": [(0, 1)] * 5000}, "1 to 4096 rows"),
        ({"columns": 0}, "1 to 2000 columns"),
        ({"rows": [(0, 1)] * 4000, "columns": 1000}, "at most 2,000,000 cells"),
        ({"rows": [(0, 2)]}, "each row is a range of the 1 targets"),
        ({"rows": [(-1, 1)]}, "each row is a range"),
        ({"rows": [(1, 1)]}, "each row is a range"),
        ({"each": 0}, "`each` is from 1"),
        ({"first": 2**60}, "steps are less than"),
    ],
)
def test_a_request_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, Any], why: str):
    write(tmp_path, [Row(0, 0, "h", "a", "norm", 1.0)], 1)
    asked = {"run": "run", "hook": "h", "name": "norm", "rows": [(0, 1)], "first": 0, "each": 1, "columns": 1}
    with pytest.raises(th.StoreError, match=why):
        RunData("run", tmp_path).matrix(MatrixRequest(**{**asked, **change}))


def norms(target: str, values: list[float], *, first: int = 0, every: int = 1) -> Rows:
    """Return the norms of a target, one for each `every` steps."""
    return [Row(first + place * every, 0, "h", target, "norm", value) for place, value in enumerate(values)]


def test_targets_that_are_added_while_a_surface_is_read_do_not_change_it(tmp_path: Path):
    write(tmp_path, norms("b", [1.0, 2.0]), 1)
    folder, contents = opened(tmp_path)
    surface = Surface(folder, contents, "h", "norm")
    write(tmp_path, norms("a", [5.0] * 3, first=2) + norms("c", [5.0] * 3, first=2), 1)
    contents.list_parts()
    contents.read(contents.unread())
    surface.read()
    assert not surface.fits(contents)  # another surface is made, in which a place has another meaning
    assert [one.tolist() for one in surface.curve(0, 0, 1)] == [[0, 1], [1.0, 2.0], [1.0, 2.0]]


def test_many_threads_may_ask_while_a_run_grows(tmp_path: Path):
    write(tmp_path, norms("t0", [1.0]), 1)
    run, ended = RunData("run", tmp_path), threading.Event()

    def ask(seed: int) -> None:
        pick = random.Random(seed)
        while not ended.is_set():
            target = pick.randrange(len(run.summary().targets))
            asked: dict[str, Any] = {"run": "run", "hook": "h", "name": "norm", "first": 0}
            run.curve(CurveRequest(**asked, target=target, last=30, points=50))
            run.matrix(MatrixRequest(**asked, rows=[(target, target + 1)], each=1, columns=30))

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask, seed) for seed in range(3)]
        for step in range(1, 25):
            write(tmp_path, [row for t in range(step) for row in norms(f"t{t}", [1.0], first=step)], 1)
            run.update()
        ended.set()
        for one in asking:
            one.result()


def test_a_curve_has_only_steps_that_were_asked_for(tmp_path: Path):
    values = [float(step) for step in range(MAX_COLUMNS + 500)]
    values[2400] = math.nan
    write(tmp_path, norms("a", values), 100)
    run = RunData("run", tmp_path)
    run.matrix(MatrixRequest(run="run", hook="h", name="norm", rows=[(0, 1)], first=0, each=2, columns=1000))
    for first in (3, 2401):
        asked = CurveRequest(run="run", hook="h", name="norm", target=0, first=first, last=10**6, points=4000)
        curve = run.curve(asked)
        assert min(curve.steps + curve.nonfinite) >= first


def test_rows_that_overlap_too_often_are_refused(tmp_path: Path):
    write(tmp_path, norms("a", [1.0]) + norms("b", [1.0]), 1)
    asked = MatrixRequest(run="run", hook="h", name="norm", rows=[(0, 2)] * 65, first=0, each=1, columns=1)
    with pytest.raises(StoreError, match="in at most 64 rows on average"):
        RunData("run", tmp_path).matrix(asked)


def test_open_runs_share_the_memory_for_surfaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tenterhook.view.data.surfaces.MAX_BYTES", 100)
    shared = Surfaces()
    for id in ("one", "two"):
        write(tmp_path / id, norms("a", [1.0] * 20), 20)
        asked = MatrixRequest(run=id, hook="h", name="norm", rows=[(0, 1)], first=3, each=1, columns=5)
        RunData(id, tmp_path / id, shared).matrix(asked)
        surface = Surface(*opened(tmp_path / id), "h", "norm")
        assert surface.size == 80
        shared.put((id, "h", "norm"), surface)
    assert shared.get(("one", "h", "norm")) is None and shared.get(("two", "h", "norm")) is not None


def opened(folder: Path) -> tuple[Folder, Contents]:
    """Return a run folder with what it contains."""
    contents = Contents(Folder(folder), [])
    contents.list_parts()
    contents.read_ends()
    return Folder(folder), contents


def test_the_pages_about_the_codes_of_a_run_are_part_of_it():
    pages = pages_about(["TH803", "TH803", "TH999", "../../../README", "", None, 7])
    assert list(pages) == ["TH803"] and pages["TH803"].startswith("# TH803: ")


@pytest.mark.parametrize("case", ["values: no step", "size: a name of 60 kB in 50,000 rows"])
def test_hostile_runs_are_shown_or_refused_within_limits(case: str):
    command = [sys.executable, str(ROOT / "scripts" / "hostile-folders"), "--only", case]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
