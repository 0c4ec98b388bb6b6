"""Observe the calls of chosen Python code. The functions that contain the code stay as they are.

Python 3.12 and later report these calls with `sys.monitoring`. Python 3.11 reports every call of the process to a
profile function, which ignores the calls of other code.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from dis import opmap
from types import CodeType, FrameType
from typing import Any, Protocol

from tenterhook.doctor.observe.observer import Observer
from tenterhook.doctor.patch.exam_errors import ExamErrors, text_of
from tenterhook.torch_internals import compiler as dynamo

#: a function that begins to observe a call, or returns None for a call that is not of interest
Begin = Callable[[FrameType], Observer | None]

#: the module `sys.monitoring`, which Python 3.11 does not have
_monitoring: Any = getattr(sys, "monitoring", None)
_RETURN_VALUE = opmap["RETURN_VALUE"]


class CodeCalls(Protocol):
    """Observes the calls of chosen code between `start` and `stop`."""

    @property
    def active(self) -> bool:
        """Return False if the program has ended the observation."""

    def start(self) -> bool:
        """Begin to observe. Return False if another tool of the process makes this impossible."""

    def stop(self) -> bool:
        """Stop observing. Return False if the program has ended the observation before."""

    def add(self, code: CodeType, begin: Begin) -> None:
        """Observe the calls of this code from now on."""

    def remove(self, code: CodeType, begin: Begin) -> None:
        """Stop observing the calls of this code with `begin`."""

    def join(self, frame: FrameType, observer: Observer) -> None:
        """Observe a call that has already begun."""


def code_calls(errors: ExamErrors) -> CodeCalls:
    """Return the way to observe calls that fits the running version of Python."""
    return ProfiledCalls(errors) if _monitoring is None else MonitoredCalls(errors)


class OpenCalls:
    """The code to observe, and the observers of the calls that have begun but not ended."""

    def __init__(self, errors: ExamErrors) -> None:
        self._errors = errors
        #: the code to observe and the functions that begin, by the id of the code: to compare or hash code takes long
        self.codes: dict[int, tuple[CodeType, list[Begin]]] = {}
        self._open: dict[FrameType, list[Observer]] = {}

    def add(self, code: CodeType, begin: Begin) -> None:
        _, begins = self.codes.setdefault(id(code), (code, []))
        if begin not in begins:
            begins.append(begin)

    def remove(self, code: CodeType, begin: Begin) -> bool:
        """Stop observing the calls of this code with `begin`. Return True if nothing observes them any more."""
        known = self.codes.get(id(code))
        if known is None or begin not in known[1]:
            return False
        known[1].remove(begin)
        return not known[1] and self.codes.pop(id(code), None) is not None

    def begin(self, frame: FrameType) -> None:
        """Begin to observe a call."""
        _, begins = self.codes.get(id(frame.f_code), (None, ()))
        for begin in begins:
            observer = self._errors.begin(begin, frame)
            if observer is not None:
                self._open.setdefault(frame, []).append(observer)

    def join(self, frame: FrameType, observer: Observer) -> None:
        """Observe a call that has already begun."""
        next(observer)
        self._open.setdefault(frame, []).append(observer)

    def end(self, frame: FrameType, value: Any, error: str | None = None) -> None:
        """Pass the result of a call to its observer, if the call was observed."""
        observers = self._open.pop(frame, None)
        for observer in reversed(observers or ()):
            self._errors.end(observer, value, error)

    def forget(self) -> None:
        """Forget the calls that have not ended."""
        self._open.clear()


def arguments(frame: FrameType) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional arguments and the other keyword arguments of a call that has just begun."""
    code, values = frame.f_code, frame.f_locals
    count = code.co_argcount
    given = tuple(values.get(name) for name in code.co_varnames[:count])
    rest = count + code.co_kwonlyargcount
    if code.co_flags & inspect.CO_VARARGS:
        given += tuple(values.get(code.co_varnames[rest], ()))
        rest += 1
    return given, values.get(code.co_varnames[rest], {}) if code.co_flags & inspect.CO_VARKEYWORDS else {}


def _nothing(frame: FrameType) -> None:
    """Do not observe a call."""


class ProfiledCalls:
    """Observes calls with a profile function, on Python 3.11. All exams that are open share the function."""

    def __init__(self, errors: ExamErrors) -> None:
        self.calls = OpenCalls(errors)
        #: the thread that began the observation
        self._thread: int | None = None

    @property
    def active(self) -> bool:
        return threading.get_ident() != self._thread or sys.getprofile() is _profile  # each thread has its own function

    def start(self) -> bool:
        if sys.getprofile() not in (None, _profile):
            return False
        self._thread = threading.get_ident()
        _profiling.append(self)
        _watched.update(self.calls.codes)
        threading.setprofile(_profile)
        sys.setprofile(_profile)
        return True

    def stop(self) -> bool:
        active = self.active
        self.calls.forget()
        _profiling.remove(self)
        self._forget()
        if not _profiling and sys.getprofile() is _profile:
            sys.setprofile(None)
        if not _profiling and threading.getprofile() is _profile:
            threading.setprofile(None)
        return active

    def add(self, code: CodeType, begin: Begin) -> None:
        self.calls.add(code, begin)
        if self in _profiling:
            _watched.add(id(code))
            if sys.getprofile() is None:
                sys.setprofile(_profile)  # this thread began before the observation

    def remove(self, code: CodeType, begin: Begin) -> None:
        if self.calls.remove(code, begin):
            self._forget()

    def join(self, frame: FrameType, observer: Observer) -> None:
        self.add(frame.f_code, _nothing)
        self.calls.join(frame, observer)

    @staticmethod
    def _forget() -> None:
        _watched.clear()
        _watched.update(*(one.calls.codes for one in _profiling))


#: the exams that observe calls, and the ids of the code that they observe
_profiling: list[ProfiledCalls] = []
_watched: set[int] = set()


def _profile(frame: FrameType, event: str, value: Any) -> None:
    # Calls of C functions are the most frequent events, so the event is tested first.
    if event == "call":
        if id(frame.f_code) in _watched:
            for one in _profiling:
                one.calls.begin(frame)
    elif event == "return" and id(frame.f_code) in _watched:
        # A profile function does not receive the error that ended a call.
        returned = frame.f_code.co_code[frame.f_lasti] == _RETURN_VALUE
        for one in _profiling:
            one.calls.end(frame, value, None if returned else f"an error in line {frame.f_lineno}")
    elif not _profiling:
        sys.setprofile(None)  # this thread goes on after the observation


class MonitoredCalls:
    """Observes calls with `sys.monitoring`, on Python 3.12 and later."""

    def __init__(self, errors: ExamErrors) -> None:
        self._calls = OpenCalls(errors)
        self._tool = -1

    @property
    def active(self) -> bool:
        return self._tool >= 0 and _monitoring.get_tool(self._tool) == "tenterhook"

    def start(self) -> bool:
        # The ids 0, 1, 2 and 5 belong to debuggers, coverage, profilers and optimizers.
        self._tool = next((tool for tool in (4, 3) if _monitoring.get_tool(tool) is None), -1)
        if self._tool < 0:
            return False
        events = _monitoring.events
        _monitoring.use_tool_id(self._tool, "tenterhook")
        _monitoring.register_callback(self._tool, events.PY_START, self._started)
        _monitoring.register_callback(self._tool, events.PY_RETURN, self._returned)
        _monitoring.register_callback(self._tool, events.PY_UNWIND, self._raised)
        _monitoring.set_events(self._tool, events.PY_UNWIND)  # this event cannot be limited to some code
        for code, _ in self._calls.codes.values():
            self._set_events(code, events.PY_START | events.PY_RETURN)
        return True

    def stop(self) -> bool:
        if not self.active:
            return False
        self._calls.forget()
        _monitoring.set_events(self._tool, 0)
        for code, _ in self._calls.codes.values():
            self._set_events(code, 0)
        for event in (_monitoring.events.PY_START, _monitoring.events.PY_RETURN, _monitoring.events.PY_UNWIND):
            _monitoring.register_callback(self._tool, event, None)
        _monitoring.free_tool_id(self._tool)
        self._tool = -1
        return True

    def add(self, code: CodeType, begin: Begin) -> None:
        self._calls.add(code, begin)
        self._set_events(code, _monitoring.events.PY_START | _monitoring.events.PY_RETURN)

    def remove(self, code: CodeType, begin: Begin) -> None:
        if self._calls.remove(code, begin):
            self._set_events(code, 0)

    def join(self, frame: FrameType, observer: Observer) -> None:
        self.add(frame.f_code, _nothing)
        self._calls.join(frame, observer)

    def _set_events(self, code: CodeType, events: int) -> None:
        if self._tool >= 0:
            _monitoring.set_local_events(self._tool, code, events)

    def _started(self, code: CodeType, offset: int) -> None:
        self._calls.begin(sys._getframe(1))

    def _returned(self, code: CodeType, offset: int, value: Any) -> None:
        self._calls.end(sys._getframe(1), value)

    def _raised(self, code: CodeType, offset: int, error: BaseException) -> None:
        if id(code) in self._calls.codes:
            self._calls.end(sys._getframe(1), None, text_of(error))


# Dynamo must not compile these functions, which run inside the program.
for _function in (
    OpenCalls.begin,
    OpenCalls.end,
    _profile,
    MonitoredCalls._started,
    MonitoredCalls._returned,
    MonitoredCalls._raised,
):
    dynamo.never_compile_itself(_function.__code__)
