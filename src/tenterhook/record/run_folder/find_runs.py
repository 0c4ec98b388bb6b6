"""Find the run folders in folders, and give each an id."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tenterhook.record.run_folder.folder import Folder

#: how deep run folders are searched, and how many folders are looked into
DEPTH, MOST = 4, 20_000


def find_runs(paths: Iterable[str | os.PathLike[str]]) -> dict[str, Path]:
    """Return the run folders by id. The id of a run is its path below the folder that was given.

    Args:
        paths: Run folders, or folders that contain run folders. Links inside them are not followed.
    """
    found: dict[str, Path] = {}
    for path in map(Path, paths):
        for run in run_folders(path):
            name = os.path.relpath(run, path) if run != path else path.resolve().name
            id, number = name, 2
            while found.get(id, run) != run:
                id, number = f"{name} ({number})", number + 1
            found[id] = run
    return found


def run_folders(path: Path) -> Iterator[Path]:
    """Yield the folder itself if it is a run folder. Otherwise, yield the run folders inside it, in order of names.

    The folders inside a run folder, such as those of flight reports, are left out. Links are not followed.
    """
    waiting = [(path, 0)]
    seen = 0
    while waiting and seen < MOST:
        at, depth = waiting.pop()
        seen += 1
        if Folder(at).has_parts():
            yield at
        elif depth < DEPTH:
            waiting += [(below, depth + 1) for below in reversed(folders_in(at))]


def folders_in(path: Path) -> list[Path]:
    """Return the folders inside a folder, except links and hidden folders."""
    try:
        names = [one.name for one in os.scandir(path) if one.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(path / name for name in names if not name.startswith("."))
