"""`report`: everything that a run folder has, in one file that needs nothing else."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tenterhook.errors import StoreError
from tenterhook.record import Run, open_run
from tenterhook.view.histograms import histograms
from tenterhook.view.series import CELLS, binned, listed, matrices

Progress = Callable[[str], None]


def report(
    path: str | os.PathLike[str], out: str | os.PathLike[str], *, progress: Progress = lambda what: None
) -> None:
    """`path` is a run folder, or one that holds some."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise StoreError(
            "a report needs plotly, which is not installed", remedy="pip install 'tenterhook[report]'"
        ) from error
    folders = list(_runs(Path(path)))
    if not folders:
        raise StoreError(f"there is no recorded run in {path}", remedy="give a folder that `tenterhook run` wrote")
    runs = []
    for folder in folders:
        progress(f"reading {folder}")
        runs.append(_data(folder, CELLS // len(folders), progress))
    page = _part("report.html")
    title = ", ".join(str(run["title"]) for run in runs)
    inserts = {
        "title": html.escape(title), "style": _part("report.css"), "plotly": get_plotlyjs(),
        "script": _part("report.js"), "data": json.dumps(runs, allow_nan=False).replace("<", "\\u003c"),
    }  # fmt: skip
    for name, text in inserts.items():
        before, _, after = page.partition("{{" + name + "}}")
        page = before + text + after
    progress(f"writing {out}")
    with open(out, "w", encoding="utf-8") as file:
        file.write(page)


def _part(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _runs(path: Path) -> Iterator[Path]:
    """Itself, or those in it; what a flight recorder wrote is shown with the run it belongs to."""
    if any(path.glob("part-*.parquet")):
        yield path
        return
    for below in sorted(p for p in path.iterdir() if p.is_dir()) if path.is_dir() else ():
        if any(below.glob("part-*.parquet")):
            yield below


def _data(folder: Path, room: int, progress: Progress) -> dict[str, Any]:
    run = open_run(folder)
    listing = listed(run)
    steps = binned(listing, room)
    made = []
    for matrix in matrices(run, listing, steps, room=room):
        progress(f"{matrix.hook}/{matrix.name}: {len(matrix.targets):,} targets")
        made.append(matrix.data())
    return {
        "title": folder.resolve().name, "path": str(folder), "steps": steps.data(), "targets": listing.targets,
        "dropped": listing.dropped, "matrices": made, "histograms": histograms(run, listing), "ledger": run.ledger,
        "findings": run.findings, "plan": _plan(run), "flights": list(_flights(folder)),
    }  # fmt: skip


def _plan(run: Run) -> dict[str, Any] | None:
    if run.plan is None:
        return None
    from tenterhook.errors import PlanError, PlanFileError
    from tenterhook.plan import Plan

    try:
        digest = Plan.from_json(run.plan).digest
    except (PlanError, PlanFileError):  # it has functions, which no file holds
        digest = None
    return {"text": run.plan, "digest": digest}


def _flights(folder: Path) -> Iterator[dict[str, Any]]:
    for found in sorted(folder.glob("flights/*/flight.json")):
        yield json.loads(found.read_text())
