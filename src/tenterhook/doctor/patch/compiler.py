"""Watch what torch.compile does with hooks. The module uses dynamo's records and adds no code to compiled graphs."""

from __future__ import annotations

import os
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import update_wrapper, wraps
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from tenterhook.doctor.observe.hook_kinds import FORWARD, FULL
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.observe.model_index import Caller, caller
from tenterhook.doctor.observe.observer import Observer
from tenterhook.doctor.observe.timeline import Timeline
from tenterhook.torch_internals import Capability, warn_of
from tenterhook.torch_internals import compiler as dynamo

#: the name of the autograd node that represents an entire compiled graph
COMPILED_NODE = "CompiledFunctionBackward"


#: serial numbers of the hooks that were traced into compiled code, where they cannot be observed
traced: set[int] = set()


@dataclass(frozen=True, slots=True)
class Recompiled:
    """A recompilation that a hook caused."""

    #: the line of the hook's code whose guard failed
    place: str
    #: the name of the recompiled frame
    frame: str
    #: True if the recompiled frame is the hook itself
    alone: bool
    #: True if the compiler did not recompile because its limit was reached
    refused: bool


@dataclass(frozen=True, slots=True)
class Retained:
    """A tensor that compiled code returned and on which the program called `retain_grad`."""

    tensor: weakref.ref[Tensor]
    name: str
    caller: Caller


def uncompiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that dynamo compiles the function and its callees only as part of compiled callers."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return fn(*args, **kwargs)
        compiler = dynamo.swap_compiler(None)
        try:
            return fn(*args, **kwargs)
        finally:
            dynamo.swap_compiler(compiler)

    dynamo.never_compile_itself(call.__code__)
    return update_wrapper(call, fn)


class Compiler:
    """An observer that watches dynamo without importing it."""

    def __init__(self, hooks: list[HookRecord], timeline: Timeline) -> None:
        self._hooks = hooks
        self._timeline = timeline
        #: models that were compiled
        self.models: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._undo: ExitStack | None = None
        self._entered: HookRecord | None = None
        self._seen: Any = None
        self._frames: dict[str, str] = {}
        #: by hook number: the reasons for the graph breaks that the hook caused
        self.breaks: dict[int, list[str]] = {}
        #: by hook number: the recompilations that the hook caused
        self.recompiled: dict[int, list[Recompiled]] = {}
        #: by hook number: the hook's operations that the compiler removed
        self.left_out: dict[int, list[str]] = {}
        #: by hook number, for hooks registered after a compilation: whether compiled code runs the hooked module
        self.late: dict[int, bool] = {}
        #: by hook number, for these hooks: calls of the compiled model in which the hook did not fire
        self.missed: dict[int, int] = {}
        #: by hook number: how many backward passes did not fire the hook before the hook was compiled
        self._before: dict[int, int] = {}
        #: number of graph breaks caused by backward hooks; dynamo does not report which modules have these hooks
        self.breaks_for_backward = 0
        self._retained: list[Retained] = []
        #: the tensors in `_retained` that still had no gradient after a backward pass
        self.emptied: list[Retained] = []

    # -- listening ---------------------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Patch dynamo if the program has imported it. Further calls do nothing."""
        if self._undo is not None or not self._timeline.open or not dynamo.may_compile():
            return
        self._undo = ExitStack()
        warn_of(Capability.COMPILED_EXAM)
        self._seen = next(reversed(dynamo.compilations()), None)
        entered = (self._breaking, self._lowering, self._inlining)
        for (owner, name), wrapped in zip(dynamo.dynamo_entries(), entered, strict=False):
            was = getattr(owner, name)
            self._undo.callback(setattr, owner, name, was)
            setattr(owner, name, wrapped(was))

    def close(self) -> None:
        if self._undo is not None:
            self._undo.close()

    def runs(self, module: nn.Module) -> bool:
        """Return True if the module, or a module that contains it, was compiled."""
        return any(one is module for around in list(self.models) for one in around.modules())

    def came(self, hook: HookRecord) -> None:
        """Record a hook that was registered on a module after a compilation."""
        module = hook.owner.now()
        if isinstance(module, nn.Module) and dynamo.may_compile() and dynamo.compilations():
            self.late[hook.number] = self.runs(module)

    def calling(self, frame: FrameType) -> Observer:
        """Observe a call of a compiled model, and count the hooks that were registered later and do not fire in it."""
        model = frame.f_locals.get("self")
        inside = set(map(id, model.modules())) if self.late and isinstance(model, nn.Module) else set()
        late = [one for one in map(self._hooks.__getitem__, self.late) if one.owner.id in inside and one.alive]
        before = [one.fired for one in late]
        yield
        for hook, fired in zip(late, before, strict=True):
            if hook.kind in FORWARD and hook.fired == fired and hook.serial not in traced:
                self.missed[hook.number] = self.missed.get(hook.number, 0) + 1

    def enter(self, hook: HookRecord) -> None:
        """Record that the compiler is tracing into this hook."""
        traced.add(hook.serial)
        self.listen()
        self.collect()
        self._entered = hook
        self._before.setdefault(hook.number, _uses(hook))

    def without(self, hook: HookRecord) -> int:
        """Count the backward passes through code compiled before the registration, if the hook was compiled later."""
        if not self.late.get(hook.number):
            return 0
        broken = hook.kind in FULL and hook.fired and self.breaks_for_backward
        # The list of missed backward passes includes the pass in which the hook fired.
        return _uses(hook) - 1 if broken else self._before.get(hook.number, 0)

    def _breaking(self, tell: Callable[..., None]) -> Callable[..., None]:
        @wraps(tell)
        def told(*args: Any, **kwargs: Any) -> None:
            text, frames = dynamo.graph_break(args, kwargs)
            entered = self._entered
            # If the hook is the outermost frame, dynamo compiles it alone, after it broke the graph of the model.
            if entered is not None and any(_is_in(frame, entered) for frame in frames[1:]):
                self.breaks.setdefault(entered.number, []).append(text.rstrip("."))
            elif text.startswith("Module-level backwards hooks"):
                self.breaks_for_backward += 1
            tell(*args, **kwargs)

        return told

    def _inlining(self, begin: Callable[..., None]) -> Callable[..., None]:
        @wraps(begin)
        def begun(*args: Any, **kwargs: Any) -> None:
            code, module = dynamo.inlined(args)
            for hook in self._hooks if code is not None else ():
                if hook.code is code and hook.alive and (module is None or hook.owner.now() is module):
                    self.enter(hook)
            begin(*args, **kwargs)

        return begun

    def _lowering(self, lower: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(lower)
        def made(output: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
            unused = dynamo.unused_operations(graph)
            before = dynamo.lowered()
            code = lower(output, graph, *args, **kwargs)
            for name, stack in unused if dynamo.lowered() > before else ():
                for hook, _ in self._hooks_in(dynamo.frames_in(stack)):
                    self.left_out.setdefault(hook.number, []).append(name)
            return code

        return made

    def collect(self) -> None:
        """Read dynamo's records of the compilations since the last call."""
        if self._undo is None:
            return
        for one in dynamo.compilations(self._seen):
            self._seen = one
            number = str(one.compile_id).partition("/")[0]
            if one.co_name is not None:
                self._frames[number] = one.co_name
            frames = dynamo.frames_in(one.recompile_reason)
            for hook, alone in self._hooks_in(frames):
                file, line, _ = frames[-1]
                place = f"{os.path.basename(file)}:{line}"
                again = Recompiled(place, self._frames.get(number, "?"), alone, one.fail_type is not None)
                self.recompiled.setdefault(hook.number, []).append(again)

    def _hooks_in(self, frames: list[dynamo.Frame]) -> Iterator[tuple[HookRecord, bool]]:
        """Yield each hook whose code is on the stack, and True if the hook is the outermost frame."""
        for at, frame in enumerate(frames):
            found = [hook for hook in self._hooks if _is_in(frame, hook)]
            if found:
                yield from ((hook, not at) for hook in found)
                return

    # -- outputs of compiled code ------------------------------------------------------------------------------------

    def retaining(self, tensor: Tensor) -> Observer:
        """Observe a call of `retain_grad`."""
        yield
        if type(tensor.grad_fn).__name__ == COMPILED_NODE:
            self._retained.append(Retained(weakref.ref(tensor), f"tensor{list(tensor.shape)}", caller()))

    def waiting_in(self, nodes: Callable[[], set[Any]]) -> list[tuple[Retained, Tensor]]:
        """List the retained tensors that are in the graph of the next backward pass and have no gradient yet."""
        alive = [(one, t) for one in self._retained if (t := one.tensor()) is not None and t.grad is None]
        return [(one, t) for one, t in alive if t.grad_fn in nodes()] if alive else []

    def gone_through(self, waited: list[tuple[Retained, Tensor]]) -> None:
        """Record the retained tensors that still have no gradient after the backward pass."""
        self.emptied += [one for one, tensor in waited if tensor.grad is None]


def _uses(hook: HookRecord) -> int:
    """Count the backward passes that used the module but did not fire the hook, although it was registered in time."""
    return sum(meeting.used and not meeting.late for meeting in hook.missed_backwards)


def _is_in(frame: dynamo.Frame, hook: HookRecord) -> bool:
    """Return True if the frame runs the code of the hook."""
    (file, line, name), code = frame, hook.code
    return code is not None and (code.co_filename, code.co_name) == (file, name) and line in _lines(code)


def _lines(code: types.CodeType) -> set[int]:
    return {line for _, _, line in code.co_lines() if line is not None}
