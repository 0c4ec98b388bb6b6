"""Read the files of the user interface, which are built from `ui/`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tenterhook.errors import StoreError

FOLDER = Path(__file__).parent / "app"


@cache
def app_file(name: str) -> bytes:
    """Return the content of a file of the user interface.

    Raises:
        StoreError: The user interface is not built. This happens only in a checkout of the source code.
    """
    try:
        return (FOLDER / name).read_bytes()
    except OSError as error:
        raise StoreError(
            "the user interface is not built", remedy="run `npm ci && npm run build` in the folder ui"
        ) from error
