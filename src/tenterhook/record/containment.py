"""Contain the errors of recording, so that they do not stop training.

Training calls the recorder only through `ContainedErrors.contain`.
"""

from __future__ import annotations

import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ContainedErrors:
    """The errors in the recording of one rig. Each kind of error is reported once, and all are counted."""

    def __init__(self) -> None:
        #: number of errors by what failed
        self.counts: Counter[str] = Counter()

    def contain(self, what: str, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Call a function, and return None if it raises an error.

        Args:
            what: What the function does, such as "writing a report". The warning says that this failed.
            act: The function.
        """
        try:
            return act(*args, **kwargs)
        except BaseException as error:
            self.add(what, error)
            return None

    def add(self, what: str, error: BaseException) -> None:
        """Count an error and report it once. Raise it again if it shall end the program."""
        if ends_the_program(error):
            raise error
        self.counts[what] += 1
        if self.counts[what] == 1:
            warnings.warn(f"tenterhook: {what} failed, and training goes on: {error!r}", RuntimeWarning, stacklevel=3)


def ends_the_program(error: BaseException) -> bool:
    """Return True if an error comes from the user or from a signal handler of the program, and not from recording."""
    if isinstance(error, SystemExit):
        return _passed_a_signal_handler(error.__traceback__)
    return not isinstance(error, Exception)


def _passed_a_signal_handler(traceback: TracebackType | None) -> bool:
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    while traceback is not None:
        if traceback.tb_frame.f_code in handlers:
            return True
        traceback = traceback.tb_next
    return False


def _code_of(handler: Any) -> Any:
    """Return the code of a signal handler, which may be a function, a method or an object that can be called."""
    if not callable(handler):
        return None
    function = getattr(handler, "__func__", handler)
    return getattr(function, "__code__", None) or getattr(type(handler).__call__, "__code__", None)


def call_and_report(what: str, act: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Call a function, and report its error instead of raising it: on a thread, in a signal handler or at exit."""
    try:
        act(*args, **kwargs)
    except BaseException as error:
        warn_or_print(f"tenterhook: {what} failed: {error!r}")


def warn_or_print(text: str) -> None:
    """Warn where an error cannot be raised. If warnings are errors, print the text instead."""
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    except Warning:
        print(text, file=sys.stderr)
