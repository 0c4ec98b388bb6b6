"""Check that tenterhook supports the installed version of torch."""

from __future__ import annotations

import os
import warnings

import torch

#: the first version that is supported; the suite is not run with earlier ones
FLOOR = (2, 10)
#: the last version that the suite was run with, see docs/versions.md
TESTED = (2, 15)


def check_version(version: str = torch.__version__) -> None:
    """Refuse a torch that is too old, and warn of one that is newer than all tested versions.

    Raises:
        ImportError: torch is older than FLOOR.
    """
    found = tuple(int(part) for part in version.split(".")[:2])
    if found < FLOOR:
        raise ImportError(
            f"tenterhook needs torch {as_text(FLOOR)} or later, but torch {version} is installed. With earlier "
            f"versions, hooks in compiled code may be lost silently. Run pip install 'torch>={as_text(FLOOR)}'"
        )
    if found > TESTED and os.environ.get("RANK", "0") == "0":  # one warning from all ranks
        warnings.warn(
            f"tenterhook was tested with torch {as_text(FLOOR)} to {as_text(TESTED)}, but torch {version} is "
            "installed. Run your hooks once under th.examine() before you rely on them",
            stacklevel=2,
        )


def as_text(version: tuple[int, int]) -> str:
    """Return a version as text, such as `"2.13"`."""
    return ".".join(map(str, version))
