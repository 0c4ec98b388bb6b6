"""Choose how much of a long suite runs: a slice on each change, or everything."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

#: True if every case of each suite runs
EVERY = bool(os.environ.get("EVERY_CASE"))


def sliced(cases: Sequence[T], step: int) -> Sequence[T]:
    """Return every case, or one of each `step` cases."""
    return cases if EVERY else cases[::step]
