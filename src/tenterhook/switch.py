"""Turn tenterhook off with the environment variable `TENTERHOOK=0`, without a change of the program."""

from __future__ import annotations

import os
import warnings

VARIABLE = "TENTERHOOK"
_warned = False


def is_off() -> bool:
    """Return True if `TENTERHOOK=0` is set. Rigs then count steps, but no hook fires. The first call warns."""
    global _warned
    off = os.environ.get(VARIABLE) == "0"
    if off and not _warned:
        _warned = True
        if os.environ.get("RANK", "0") == "0":
            warnings.warn(
                f"tenterhook is off: no hook fires, because {VARIABLE}=0 is set in the environment",
                RuntimeWarning,
                stacklevel=2,
            )
    return off
