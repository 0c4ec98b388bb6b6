"""Write the contents of a run folder to a self-contained HTML file that needs no network access."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from tenterhook.errors import StoreError
from tenterhook.record import FlightFile, Folder, Run, no_run_in, open_run, read_json, write_file
from tenterhook.view.histograms import histograms
from tenterhook.view.series import MAX_CELLS, choose_bins, matrices, read_contents

Progress = Callable[[str], None]


def report(
    path: str | os.PathLike[str], out: str | os.PathLike[str], *, progress: Progress = lambda what: None
) -> None:
    """Write a report on one or more recorded runs as an HTML file.

    Args:
        path: A run folder, or a folder that contains run folders.
        out: The HTML file to write.
        progress: Function that is called with a message at each stage.

    Raises:
        StoreError: plotly is not installed, or `path` contains no recorded run.
    """
    folders = list(_run_folders(Path(path)))
    if not folders:
        raise no_run_in(str(path), "pass a folder that `tenterhook run` wrote")
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise StoreError(
            "a report needs plotly, which is not installed", remedy="run pip install 'tenterhook[report]'"
        ) from error
    runs = []
    for folder in folders:
        progress(f"reading {folder}")
        runs.append(_run_data(folder, MAX_CELLS // len(folders), progress))
    page = _asset("report.html")
    title = ", ".join(str(run["title"]) for run in runs)
    # A browser reads every line ending as "\n", so the digests are those of scripts with these line endings.
    script, plotly = (text.replace("\r\n", "\n").replace("\r", "\n") for text in (_asset("report.js"), get_plotlyjs()))
    inserts = {
        "policy": f"default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
        f"form-action 'none'; script-src {_digest(script)} {_digest(plotly)}",
        "title": html.escape(title),
        "style": _asset("report.css"),
        "plotly": plotly,
        "script": script,
        "data": json.dumps(runs, allow_nan=False).replace("<", "\\u003c"),
    }
    # One pass, so that a place in an inserted text, such as the name of a folder, is not filled in.
    page = re.sub(r"\{\{(\w+)\}\}", lambda place: inserts[place[1]], page)
    progress(f"writing {out}")
    try:
        write_file(out, page.encode(errors="replace"))
    except OSError as error:
        raise StoreError(f"the report {out} cannot be written: {error}", remedy="choose another file") from error


def _digest(script: str) -> str:
    """Return the source of a script in a content security policy, which allows this script and no other one."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _run_folders(path: Path) -> Iterator[Path]:
    """Yield the folder itself if it is a run folder. Otherwise, yield the run folders inside it.

    Flight recorder folders are left out, because the report shows them with their run. Links are not followed.
    """
    if Folder(path).has_parts():
        yield path
        return
    for below in _folders_in(path):
        if Folder(below).has_parts():
            yield below


def _folders_in(path: Path) -> list[Path]:
    """Return the folders inside a folder, except links."""
    try:
        return sorted(path / one.name for one in os.scandir(path) if one.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _run_data(folder: Path, max_cells: int, progress: Progress) -> dict[str, Any]:
    """Read the data that the page shows for one run."""
    run = open_run(folder)
    contents = read_contents(run)
    bins = choose_bins(contents, max_cells)
    made = []
    for matrix in matrices(run, contents, bins, max_cells=max_cells):
        progress(f"{matrix.hook}/{matrix.name}: {len(matrix.targets):,} targets")
        made.append(matrix.data())
    return {
        "title": folder.resolve().name,
        "path": str(folder),
        "steps": bins.data(),
        "targets": contents.targets,
        "dropped": contents.dropped,
        "matrices": made,
        "histograms": histograms(run, contents),
        "ledger": run.ledger,
        "verdicts": [asdict(one) for one in run.verdicts],
        "findings": run.findings,
        "plan": _plan(run),
        "flights": list(_flights(folder)),
    }


def _plan(run: Run) -> dict[str, Any] | None:
    if run.plan is None:
        return None
    from tenterhook.errors import PlanError, PlanFileError
    from tenterhook.plan import Plan

    try:
        digest = Plan.from_json(run.plan).digest
    except (PlanError, PlanFileError):  # the plan contains functions, which a file cannot store
        digest = None
    return {"text": run.plan, "digest": digest}


def _flights(folder: Path) -> Iterator[dict[str, Any]]:
    name, size = "flight.json", 0
    for below in _folders_in(folder / "flights") if not (folder / "flights").is_symlink() else ():
        inside = Folder(below)
        if name in inside.names():
            text = inside.read(name)
            size += len(text)
            if size > inside.limits.text_bytes:
                raise StoreError(
                    f"the flight reports in {folder} have more than {inside.limits.text_bytes:,} bytes",
                    remedy="move some of the folders in `flights` out of the run folder",
                )
            yield msgspec.to_builtins(read_json(name, text, FlightFile))
