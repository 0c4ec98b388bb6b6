"""Run the code of an exam so that its own errors never reach the program."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import update_wrapper
from types import TracebackType
from typing import Any, TypeVar

import torch

from tenterhook.doctor.observe.observer import FailedCallError, Observer
from tenterhook.torch_internals import compiler as dynamo

T = TypeVar("T")


class Contained:
    """A context manager that records an error of its block. Dynamo does not compile what runs in the block."""

    def __init__(self, errors: ExamErrors) -> None:
        self._errors = errors

    def __enter__(self) -> None:
        self._compiler = dynamo.swap_compiler(None)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> bool:
        if isinstance(error, Exception):
            self._errors.note(error)
        dynamo.swap_compiler(self._compiler)
        return isinstance(error, Exception)


class ExamErrors:
    """Records the errors of an exam itself."""

    def __init__(self) -> None:
        #: the first error, with its place
        self.first: str | None = None

    def contained(self) -> Contained:
        """Return a context manager that records an error of its block instead of raising it."""
        return Contained(self)

    def note(self, error: Exception) -> None:
        """Record an error of the exam."""
        if self.first is None:
            last = traceback.extract_tb(error.__traceback__)[-1]
            self.first = f"{text_of(error)} ({last.filename.rpartition('/')[2]}:{last.lineno})"

    def begin(self, observe: Callable[..., Observer | None], *args: Any, **kwargs: Any) -> Observer | None:
        """Begin to observe a call. Return None if there is nothing to observe, or after an error of the observer."""
        with self.contained():
            observer = observe(*args, **kwargs)
            if observer is not None:
                next(observer)
            return observer
        return None

    def end(self, observer: Observer | None, value: Any, error: str | None = None) -> None:
        """Pass the value that a call returned, or the text of the error that it raised, to its observer.

        The error itself is not passed, because a generator would add its own frame to the traceback of the error.
        """
        if observer is None:
            return
        with self.contained():
            try:
                if error is None:
                    observer.send(value)
                else:
                    observer.throw(FailedCallError(error))
            except (StopIteration, FailedCallError):
                return

    def containing(self, fn: Callable[..., None]) -> Callable[..., None]:
        """Wrap a function that PyTorch calls for the exam, so that its errors are recorded instead of raised."""

        def call(*args: Any, **kwargs: Any) -> None:
            if torch.compiler.is_compiling():
                return fn(*args, **kwargs)
            with self.contained():
                fn(*args, **kwargs)

        dynamo.never_compile_itself(call.__code__)
        return call

    def until_error(self, values: Iterable[T]) -> Iterator[T]:
        """Yield the values, up to the first error."""
        with self.contained():
            yield from values

    def around(self, observe: Callable[..., Observer]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return a decorator that observes each call of a function, for a function that is replaced by its wrapper."""

        def wrapped(fn: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                if torch.compiler.is_compiling():
                    return fn(*args, **kwargs)
                observer = self.begin(observe, *args, **kwargs)
                try:
                    out = fn(*args, **kwargs)
                except BaseException as error:
                    self.end(observer, None, text_of(error))
                    raise
                self.end(observer, out)
                return out

            dynamo.never_compile_itself(call.__code__)
            return update_wrapper(call, fn)

        return wrapped


def text_of(error: BaseException) -> str:
    """Return the class and the text of an error."""
    return f"{type(error).__name__}: {error}"


# Dynamo must not compile these functions, which run inside the program.
for _function in (
    Contained.__init__,
    Contained.__enter__,
    Contained.__exit__,
    ExamErrors.contained,
    ExamErrors.begin,
    ExamErrors.end,
):
    dynamo.never_compile_itself(_function.__code__)
