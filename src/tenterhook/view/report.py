"""Write the user interface with the data of runs to one HTML file, which needs no network access."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import os
from collections.abc import Callable

from tenterhook.diff import compare
from tenterhook.errors import StoreError
from tenterhook.record import no_run_in, write_file
from tenterhook.record.run_folder.find_runs import find_runs
from tenterhook.view.app_files import app_file
from tenterhook.view.data.run_data import RunData
from tenterhook.view.file_data import MAX_CELLS, FileDifference, file_data, file_run

Progress = Callable[[str], None]
#: the first run is compared with so many others
MAX_DIFFERENCES = 7


def report(
    path: str | os.PathLike[str], out: str | os.PathLike[str], *, progress: Progress = lambda what: None
) -> None:
    """Write a report on one or more recorded runs as an HTML file.

    Args:
        path: A run folder, or a folder that contains run folders.
        out: The HTML file to write.
        progress: Function that is called with a message at each stage.

    Raises:
        StoreError: `path` contains no recorded run, or a package of the extra `report` is missing.
    """
    found = find_runs([path])
    if not found:
        raise no_run_in(str(path), "pass a folder that `tenterhook run` wrote")
    runs = []
    for id, folder in found.items():
        progress(f"reading {folder}")
        runs.append(file_run(RunData(id, folder), MAX_CELLS // len(found)))
    title = ", ".join(run.title for run in runs)
    first, *others = found.items()
    differences = [FileDifference(first[0], id, compare(first[1], folder)) for id, folder in others[:MAX_DIFFERENCES]]
    page = page_of(title, file_data(runs, differences))
    progress(f"writing {out}")
    try:
        write_file(out, page.encode(errors="replace"))
    except OSError as error:
        raise StoreError(f"the report {out} cannot be written: {error}", remedy="choose another file") from error


def page_of(title: str, data: bytes) -> str:
    """Return the page as one HTML text.

    Args:
        title: The title of the page.
        data: What the page shows, as JSON.
    """
    # A browser reads every line ending as "\n", so the digests are those of texts with these line endings.
    script, style = (
        app_file(name).decode().replace("\r\n", "\n").replace("\r", "\n") for name in ("app.js", "app.css")
    )
    script = script.replace("</script", "<\\/script")
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; img-src data: blob:; base-uri 'none'; form-action 'none'; "
        f"script-src {_digest(script)}"
    )
    packed = base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body>
<div id="app"></div>
<script id="data" type="text/plain">{packed}</script>
<script>{script}</script>
</body>
</html>
"""


def _digest(text: str) -> str:
    """Return the source of a script or style in a content security policy, which allows this one and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
