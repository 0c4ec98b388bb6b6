"""Compare what the hooks on saved tensors unpack with what they packed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from tenterhook.doctor.observe.firing_sample import comparable
from tenterhook.doctor.observe.model_index import Caller, caller
from tenterhook.doctor.observe.observer import Observer
from tenterhook.doctor.observe.timeline import Timeline
from tenterhook.doctor.patch.calls.attribution import called_code
from tenterhook.doctor.patch.calls.code_calls import CodeCalls, arguments
from tenterhook.doctor.reading.functions import bare

#: the maximum number of packed tensors to remember, and the maximum number of elements in each
MOST, ELEMENTS = 64, 1_000_000
#: two tensors that differ by more than this, relatively, are not one tensor in two precisions
FAR = 0.5


@dataclass(slots=True, eq=False)
class SavedTensorsHooks:
    """A pair of hooks on saved tensors, and what they packed and unpacked."""

    caller: Caller
    #: what the pack hook returned and copies of the tensors that it was given, by the id of what it returned
    packed: dict[int, list[tuple[Any, Tensor]]] = field(default_factory=dict)
    #: calls of the pack hook, and the thread that created the hooks
    calls: int = 0
    thread: int = field(default_factory=threading.get_ident)
    unpacked: int = 0
    #: True if the code of the pack hook asks for the id of a tensor
    by_id: bool = False
    #: calls of the pack hook with a view of a parameter
    views: int = 0
    #: unpacked tensors that differ from the packed ones, and a description of the first difference
    wrong: int = 0
    difference: str = ""

    def pack(self, frame: FrameType) -> Observer:
        tensor = arguments(frame)[0][-1:]
        out = yield
        self.calls += 1
        self.views += bool(tensor) and isinstance(getattr(tensor[0], "_base", None), nn.Parameter)
        small = tensor and isinstance(tensor[0], Tensor) and tensor[0].numel() <= ELEMENTS
        exact = small and not tensor[0].is_floating_point()
        if small and (exact or not isinstance(out, Tensor)) and len(self.packed) < MOST:
            self.packed.setdefault(id(out), []).append((out, tensor[0].detach().clone()))

    def unpack(self, frame: FrameType) -> Observer:
        given = arguments(frame)[0][-1:]
        out = yield
        known = self.packed.get(id(given[0])) if given else None
        if not known or not isinstance(out, Tensor):
            return
        _, before = known.pop()  # the backward pass unpacks in the reverse order
        self.unpacked += 1
        with torch.no_grad():
            if out.shape != before.shape:
                self._note(f"shape {list(out.shape)} instead of {list(before.shape)}")
            elif comparable(before, out) and before.is_floating_point():
                far = float((out.detach().double() - before.double()).norm()), float(before.double().norm())
                if far[0] > FAR * far[1]:
                    self._note("other values")
            elif comparable(before, out) and not torch.equal(before, out):
                self._note("other integers, such as indices")

    def _note(self, difference: str) -> None:
        self.wrong += 1
        self.difference = self.difference or difference


class SavedTensors:
    """Observes the hooks on saved tensors that the program creates."""

    def __init__(self, timeline: Timeline, calls: CodeCalls, start: Callable[[Any], Any]) -> None:
        self.hooks: list[SavedTensorsHooks] = []
        self._timeline = timeline
        self._calls, self._start = calls, start

    def creating(self, context: Any, pack_hook: Any, unpack_hook: Any) -> Observer:
        """Observe the creation of a pair of hooks."""
        by, self._timeline.saved_by_hooks = caller(), True
        if by.users and self._start(pack_hook) is not None and len(self.hooks) < MOST:
            code = getattr(bare(pack_hook), "__code__", None)
            hooks = SavedTensorsHooks(by, by_id=code is not None and "id" in code.co_names)
            self.hooks.append(hooks)
            for fn, observe in ((pack_hook, hooks.pack), (unpack_hook, hooks.unpack)):
                called = called_code(fn)
                if called is not None:
                    self._calls.add(called.code, observe)
        yield
