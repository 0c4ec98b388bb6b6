"""Observe the calls of raw hooks, and the functions of PyTorch inside which hooks are called."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextlib import ExitStack
from enum import Enum, auto
from functools import partial
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

from tenterhook import torch_internals as private
from tenterhook.doctor.observe.firing import observe_firing
from tenterhook.doctor.observe.hook_kinds import FORWARD, STEP
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.observe.observer import Observer
from tenterhook.doctor.patch.calls.attribution import Attribution, CalledCode, called_code, is_called_by_jit, tracer
from tenterhook.doctor.patch.calls.code_calls import arguments
from tenterhook.doctor.patch.events import ProgramEvents
from tenterhook.torch_internals.code_owner import is_users


class Status(Enum):
    """State whether the calls of hooks are observed."""

    #: no hook was registered yet
    CLOSED = auto()
    OPEN = auto()
    #: another tool of the process uses what the exam needs, so each hook has a proxy
    TAKEN = auto()
    #: the program has ended the observation
    LOST = auto()


class HookSight:
    """Observes the calls of hooks. It opens when the first hook is registered, because on Python 3.11 it costs time."""

    def __init__(self, events: ProgramEvents) -> None:
        self.status = Status.CLOSED
        #: several threads may register the first hook at the same time
        self._opening = threading.Lock()
        self._events = events
        self._attribution = Attribution()
        #: the functions of PyTorch inside which hooks are called, each with its observer
        self._around: tuple[tuple[tuple[Any, str], Callable[..., Observer]], ...] = (
            (private.ENGINE_ENTRY, events.backward),
            (private.FUNCTIONAL_ENTRY, events.functional_call),
            ((torch.amp.GradScaler, "step"), events.scaler_step),
        )
        #: the calls of the program's functions whose return is watched
        self._returning: set[FrameType] = set()
        #: how often each function has registered hooks, by the id of its code: compiled code cannot be hashed
        self._returns: dict[int, tuple[CodeType, int]] = {}
        #: the wrappers of these functions, until calls are observed
        self._wrappers: dict[tuple[Any, str], Any] = {}

    @property
    def lost(self) -> bool:
        """Return True if the program has ended the observation."""
        return self.status is Status.LOST or (self.status is Status.OPEN and not self._events.calls_of_code.active)

    def wrap(self, undo: ExitStack, replace: Callable[[ExitStack, Any, str, Any], None]) -> None:
        """Replace the functions inside which hooks are called with wrappers that observe them."""
        for (where, name), observe in self._around:
            self._wrappers[where, name] = wrapper = self._events.errors.around(observe)(getattr(where, name))
            replace(undo, where, name, wrapper)

    def observable(self, hook: Any) -> CalledCode | None:
        """Return the code of a hook whose calls can be observed, otherwise None."""
        called = called_code(hook)
        if called is not None and self.status is Status.CLOSED:
            with self._opening:
                if self.status is Status.CLOSED:
                    self._open()
        return called if self.status is Status.OPEN else None

    def _open(self) -> None:
        """Begin to observe calls. From now on, no function of the exam is on the stack when a hook is called."""
        calls = self._events.calls_of_code
        self.status = Status.OPEN if calls.start() else Status.TAKEN
        if self.status is Status.TAKEN:
            return
        calls.add(inspect.unwrap(nn.Module.load_state_dict).__code__, partial(_observing, self._events.loading))
        for (where, name), observe in self._around:
            wrapper: Any = getattr(where, name)
            if wrapper is self._wrappers[where, name]:  # otherwise, the program has patched the function
                setattr(where, name, wrapper.__wrapped__)
                calls.add(inspect.unwrap(wrapper).__code__, partial(_observing, observe))

    def add(self, record: HookRecord, called: CalledCode) -> None:
        """Observe the calls of a hook that was registered."""
        self._attribution.add(record, called)
        self._events.calls_of_code.add(called.code, self._begin)

    def watch_returns(self, frame: FrameType, look: Callable[[], None]) -> None:
        """Call `look` when a function of the program returns that is on the stack.

        The objects of this function, such as its model, may no longer exist when the exam ends.
        """
        step: FrameType | None = frame
        while step is not None and self.status is Status.OPEN:
            code = step.f_code
            if is_users(code.co_filename) and code.co_name != "<module>" and step not in self._returning:
                _, count = self._returns.get(id(code), (code, 0))
                self._returns[id(code)] = code, count = code, count + 1
                if count & (count - 1) == 0:  # a function that runs in every step is looked at less and less often
                    self._returning.add(step)
                    self._events.calls_of_code.join(step, self._looking(step, look))
            step = step.f_back

    def _looking(self, frame: FrameType, look: Callable[[], None]) -> Observer:
        try:
            yield
        finally:  # also if the function fails: a frame that is kept keeps the objects of the program alive
            self._returning.discard(frame)
        look()

    def close(self) -> None:
        """Stop observing."""
        if self.status is Status.OPEN:
            self._returning.clear()
            self.status = Status.CLOSED if self._events.calls_of_code.stop() else Status.LOST

    def _begin(self, frame: FrameType) -> Observer | None:
        """Observe a call of a hook's function if PyTorch calls it as a hook."""
        if not self._events.timeline.open:
            return None
        call = self._attribution.find(frame)
        if call is None:
            return None
        record, args, of_a_copy = call
        if torch.compiler.is_compiling() and not torch.compiler.is_exporting():
            self._events.compiler.enter(record)
        elif of_a_copy:
            record.copies_fired += 1
        elif tracer(args) or (record.traced and is_called_by_jit(frame)):
            if not record.traced:
                record.fired_before_trace = record.fired
            record.traced += 1
            record.traced_by = record.traced_by or tracer(args)
        else:
            if record.kind in FORWARD and args[1:2] == ((),) and not record.gets_kwargs:
                record.lacks_kwargs |= private.call_kwargs(frame.f_back).keys()
            elif record.kind in STEP:
                record.nested_steps += private.step_depth(frame) > 1
            return observe_firing(record, args)
        return None


def _observing(observe: Callable[..., Observer], frame: FrameType) -> Observer:
    args, kwargs = arguments(frame)
    return observe(*args, **kwargs)
