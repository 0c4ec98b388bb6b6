"""Define the callable that stands in for a hook whose calls cannot be observed otherwise."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import torch

from tenterhook.doctor.observe.firing import observe_firing
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.observe.timeline import Timeline
from tenterhook.doctor.patch.exam_errors import ExamErrors, text_of
from tenterhook.torch_internals import compiler as dynamo


class HookProxy:
    """A wrapper that records each call to a hook's function. It can be copied and pickled like the function."""

    def __init__(
        self, fn: Callable[..., Any], record: HookRecord, errors: ExamErrors, *, of_a_copy: bool = False
    ) -> None:
        vars(self).update(fn=fn, record=record, errors=errors, of_a_copy=of_a_copy)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Return the class of the wrapped callable, because a program may search its hooks for that class."""
        return type(self.fn)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.fn, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.fn(*args, **kwargs)
        if self.of_a_copy or not self.record.timeline.open:
            self.record.copies_fired += self.of_a_copy
            return self.fn(*args, **kwargs)
        firing = self.errors.begin(observe_firing, self.record, args)
        try:
            out = self.fn(*args, **kwargs)
        except BaseException as error:
            self.errors.end(firing, None, text_of(error))
            raise
        self.errors.end(firing, out)
        return out

    def without(self, timeline: Timeline) -> Any:
        """Return the callable that stays registered after this exam: the function, or the proxy of another exam."""
        if self.record.timeline is timeline:
            return self.fn
        if type(self.fn) is HookProxy:
            vars(self)["fn"] = self.fn.without(timeline)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return HookProxy(copy.deepcopy(self.fn, memo), self.record, self.errors, of_a_copy=True)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if isinstance(self.fn, types.FunctionType | types.BuiltinFunctionType):
            return copy.copy, (self.fn,)  # copy.copy returns a function itself, not a copy
        return self.fn.__reduce_ex__(protocol)

    def __getattr__(self, name: str) -> Any:
        if name in ("fn", "record", "errors", "of_a_copy"):
            raise AttributeError(name)
        return getattr(self.fn, name)

    def __eq__(self, other: object) -> bool:
        """Compare the wrapped functions, because a program may search its hooks for its own function."""
        return bool(self.fn == (other.fn if type(other) is HookProxy else other))

    def __hash__(self) -> int:
        return hash(self.fn)

    def __repr__(self) -> str:
        return repr(self.fn)


# If dynamo compiles a hook as a separate frame, that frame must belong to the function, not to the proxy.
dynamo.never_compile_itself(HookProxy.__call__.__code__)
