"""Let a program mark its steps with `with rig.step():`."""

from __future__ import annotations

import warnings
from types import TracebackType

from tenterhook.rig.step.end_of_step import StepFinalizer


class ProgramStep:
    """A block of a program that is one step. A call of `rig.step()` that begins no block is reported."""

    def __init__(self, finalizer: StepFinalizer) -> None:
        self._finalizer = finalizer
        self._entered = False

    def __enter__(self) -> None:
        self._entered = True
        self._finalizer.set_program_steps(True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is None:
            self._finalizer.end_step()

    def __del__(self) -> None:
        if not self._entered:
            warnings.warn(
                "tenterhook: rig.step() was called without `with`, so it marked no step\n"
                "  remedy: write `with rig.step():` around the step",
                RuntimeWarning,
                stacklevel=2,
            )
