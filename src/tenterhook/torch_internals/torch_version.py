"""Check that tenterhook supports the installed version of torch."""

from __future__ import annotations

import warnings

import torch

#: the first version that is supported; in earlier ones, hooks in compiled code are lost silently
FLOOR = (2, 13)
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
            f"tenterhook needs torch {_text(FLOOR)} or later, but torch {version} is installed. Earlier versions lose "
            f"hooks in compiled code silently. Run pip install 'torch>={_text(FLOOR)}'"
        )
    if found > TESTED:
        warnings.warn(
            f"tenterhook was tested with torch {_text(FLOOR)} to {_text(TESTED)}, but torch {version} is installed. "
            "Run your hooks once under th.examine() before you rely on them",
            stacklevel=2,
        )


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
