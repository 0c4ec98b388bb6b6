"""Define the callable that is registered in place of a hook's function, so that the exam can watch the hook."""

from __future__ import annotations

import copy
import itertools
import types
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tenterhook.doctor.observe.distribution import Distribution
from tenterhook.doctor.observe.hook_owner import HookLabel, Owner
from tenterhook.doctor.observe.hook_record import FiringLog, HookRecord
from tenterhook.doctor.observe.model_index import Caller, Place
from tenterhook.doctor.observe.source import bare, holder_of, read
from tenterhook.doctor.observe.timeline import Timeline
from tenterhook.plan import callable_name
from tenterhook.torch_internals import compiler as dynamo

FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, partial)


class HookProxy:
    """A wrapper that records each call to a hook's function. It can be copied and pickled like the function."""

    def __init__(
        self,
        fn: Callable[..., Any],
        record: HookRecord,
        on_compiled: Callable[[HookRecord], None],
        *,
        of_a_copy: bool = False,
    ) -> None:
        """Wrap a function. `on_compiled` is called whenever code that contains the hook is compiled."""
        vars(self).update(fn=fn, record=record, on_compiled=on_compiled, of_a_copy=of_a_copy)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Return the class of a wrapped callable object, because a program may search its hooks for that class."""
        return HookProxy if isinstance(self.fn, FUNCTIONS) else type(self.fn)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.fn, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            from torch._dynamo.comptime import comptime

            comptime(_going_in, self.go_in)
            return self.fn(*args, **kwargs)
        if self.of_a_copy or not self.record.timeline.open:
            self.record.copies_fired += self.of_a_copy
            return self.fn(*args, **kwargs)
        compiler = dynamo.swap_compiler(None)
        if compiler is None:
            return self.record.fire(self.fn, args, kwargs)
        try:
            return self.record.fire(_compiled_as_before(self.fn, compiler), args, kwargs)
        finally:
            dynamo.swap_compiler(compiler)

    def go_in(self) -> None:
        """Record that dynamo or an export traces the hook into compiled code."""
        traced.add(self.record.serial)
        self.on_compiled(self.record)

    def without(self, timeline: Timeline) -> Any:
        """Return the callable that stays registered after this exam: the function, or the proxy of another exam."""
        if self.record.timeline is timeline:
            return self.fn
        if type(self.fn) is HookProxy:
            vars(self)["fn"] = self.fn.without(timeline)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return HookProxy(copy.deepcopy(self.fn, memo), self.record, self.on_compiled, of_a_copy=True)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if isinstance(self.fn, types.FunctionType | types.BuiltinFunctionType):
            return copy.copy, (self.fn,)  # copy.copy returns a function itself, not a copy
        return self.fn.__reduce_ex__(protocol)

    def __getattr__(self, name: str) -> Any:
        if name in ("fn", "record", "on_compiled", "of_a_copy"):
            raise AttributeError(name)
        return getattr(self.fn, name)

    def __eq__(self, other: object) -> bool:
        """Compare the wrapped functions, because a program may search its hooks for its own function."""
        return bool(self.fn == (other.fn if type(other) is HookProxy else other))

    def __hash__(self) -> int:
        return hash(self.fn)

    def __repr__(self) -> str:
        return repr(self.fn)


#: serial numbers of the hooks that were traced into compiled code, where they cannot be watched
traced: set[int] = set()


def _going_in(trace: Any) -> None:
    """Record a hook at compile time, without adding a guard on the hook or code to the compiled frame."""
    proxy = dynamo.traced_local(trace, "self")
    if proxy is not None:
        proxy.go_in()


def _compiled_as_before(fn: Callable[..., Any], compiler: Any) -> Callable[..., Any]:
    """Wrap the function so that dynamo compiles it as it would without the exam."""

    def call(*args: Any, **kwargs: Any) -> Any:
        dynamo.swap_compiler(compiler)
        try:
            return fn(*args, **kwargs)
        finally:
            dynamo.swap_compiler(None)

    return call


# If dynamo compiles a hook as a separate frame, that frame must belong to the function, not to the proxy.
dynamo.never_compile_itself(HookProxy.__call__.__code__)


_serials = itertools.count()


def watch(
    fn: Callable[..., Any],
    kind: str,
    target: Any,
    place: Place | None,
    caller: Caller,
    *,
    number: int,
    timeline: Timeline,
    firings: FiringLog,
    distribution: Distribution,
    on_compiled: Callable[[HookRecord], None],
) -> HookProxy:
    """Create the record and the proxy for a hook that is about to be registered on `target`."""
    owner = Owner(target, place, distribution.group(target, place))
    code = getattr(fn, "__code__", None)
    function = callable_name(fn)
    record = HookRecord(
        number=number,
        serial=next(_serials),
        kind=kind,
        function=function,
        caller=caller,
        owner=owner,
        born=timeline.now(),
        reading=read(fn),
        identity=(id(fn), id(code) if code else 0),
        timeline=timeline,
        firings=firings,
        distribution=distribution,
        label=HookLabel(function, owner.name, kind),
        code=getattr(bare(fn), "__code__", None),
        bound=bool(getattr(fn, "__closure__", None) or getattr(fn, "__defaults__", None)),
    )
    if isinstance(target, Tensor) and not target.is_leaf:
        record.holder = holder_of(fn, target)
    return HookProxy(fn, record, on_compiled)
