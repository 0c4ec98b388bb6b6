"""What torch.compile made of hooks, as far as dynamo tells: nothing here goes into what is compiled."""

from __future__ import annotations

import os
import re
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import update_wrapper, wraps
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tenterhook.doctor.findings import Finding, finding, many
from tenterhook.doctor.places import Caller, caller
from tenterhook.doctor.watched import BACKWARD, FULL, LOOKS, Watched, said
from tenterhook.rig import dynamo_private as dynamo

if TYPE_CHECKING:
    from tenterhook.doctor.course import Course
    from tenterhook.doctor.raw import Exam

#: recompilations for one hook before it counts as one at each call; a flag that is on or off takes two
HABIT = 3

#: the node of a graph that AOTAutograd made
COMPILED_NODE = "CompiledFunctionBackward"

_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)

Frame = tuple[str, int, str]


@dataclass(frozen=True, slots=True)
class Recompiled:
    """Once more, because of something that a hook does."""

    #: the line that changes what the code was made for, and the frame of that code
    place: str
    frame: str
    #: the hook is that frame
    alone: bool
    #: there was no more: the limit was reached
    refused: bool


@dataclass(frozen=True, slots=True)
class Retained:
    """A tensor that compiled code gave, and that is to keep its gradient."""

    tensor: weakref.ref[Tensor]
    name: str
    caller: Caller


def aside(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Neither it nor what it calls is compiled by itself; where compiled code calls it, it is inlined."""

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
    """Dynamo, watched. It is not imported for that."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._undo: ExitStack | None = None
        self._entered: Watched | None = None
        self._seen: Any = None
        self._frames: dict[str, str] = {}
        #: by hook: why it broke graphs; recompilations for it; its operations that were left out
        self.breaks: dict[int, list[str]] = {}
        self.recompiled: dict[int, list[Recompiled]] = {}
        self.left_out: dict[int, list[str]] = {}
        #: hooks that came when something was compiled already, and whether that was what runs their module
        self.late: dict[int, bool] = {}
        #: by hook, the backwards that ran before it was compiled in
        self._before: dict[int, int] = {}
        #: graph breaks for backward hooks, which do not say of which module
        self.breaks_for_backward = 0
        self._retained: list[Retained] = []
        #: of those, the ones that a backward left without a gradient
        self.emptied: list[Retained] = []

    # -- listening ---------------------------------------------------------------------------------------------------

    def listen(self) -> None:
        """As soon as dynamo is there."""
        if self._undo is not None or not self._course.open or not dynamo.may_compile():
            return
        self._undo = ExitStack()
        self._seen = next(reversed(dynamo.compilations()), None)
        for (owner, name), wrapped in zip(dynamo.dynamo_entries(), (self._breaking, self._lowering), strict=True):
            was = getattr(owner, name)
            self._undo.callback(setattr, owner, name, was)
            setattr(owner, name, wrapped(was))

    def close(self) -> None:
        if self._undo is not None:
            self._undo.close()

    def came(self, hook: Watched) -> None:
        module = hook.owner.now()
        if isinstance(module, nn.Module) and dynamo.may_compile() and dynamo.compilations():
            self.late[hook.number] = self._course.runs_compiled(module)

    def enter(self, hook: Watched) -> None:
        """A hook goes into code that is compiled now."""
        self.listen()
        self.collect()
        self._entered = hook
        self._before.setdefault(hook.number, _uses(hook))

    def without(self, hook: Watched) -> int:
        """Backwards through compiled code that was made before the hook, if other code has it since."""
        if not self.late.get(hook.number):
            return 0
        broken = hook.kind in FULL and hook.fired and self.breaks_for_backward
        # It has met the backward that it fired in.
        return _uses(hook) - 1 if broken else self._before.get(hook.number, 0)

    def _breaking(self, tell: Callable[..., None]) -> Callable[..., None]:
        @wraps(tell)
        def told(*args: Any, **kwargs: Any) -> None:
            error = kwargs.get("exc", args[-1])
            frames = dynamo.broken_at(error)
            text = str(error).partition("\n")[0].rstrip(".")
            if any(map(_is_stand_in, frames)) and self._entered is not None:
                self.breaks.setdefault(self._entered.number, []).append(text)
            elif text.startswith("Module-level backwards hooks"):
                self.breaks_for_backward += 1
            tell(*args, **kwargs)

        return told

    def _lowering(self, lower: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(lower)
        def made(output: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
            unused = dynamo.unused_operations(graph)
            before = dynamo.lowered()
            code = lower(output, graph, *args, **kwargs)
            for name, stack in unused if dynamo.lowered() > before else ():
                for hook, _ in self._hooks_in(_frames(stack)):
                    self.left_out.setdefault(hook.number, []).append(name)
            return code

        return made

    def collect(self) -> None:
        """What was compiled since the last time."""
        if self._undo is None:
            return
        for one in dynamo.compilations(self._seen):
            self._seen = one
            number = str(one.compile_id).partition("/")[0]
            if one.co_name is not None:
                self._frames[number] = one.co_name
            for hook, alone in self._hooks_in(_frames(one.recompile_reason or "")):
                file, line, _ = _frames(one.recompile_reason)[-1]
                place = f"{os.path.basename(file)}:{line}"
                again = Recompiled(place, self._frames.get(number, "?"), alone, one.fail_type is not None)
                self.recompiled.setdefault(hook.number, []).append(again)

    def _hooks_in(self, frames: list[Frame]) -> Iterator[tuple[Watched, bool]]:
        """The hooks whose code is running in a stack, and whether they are its outermost frame."""
        start = next((n for n, frame in enumerate(frames) if _is_stand_in(frame)), -1) + 1
        if start >= len(frames):
            return
        file, line, name = frames[start]
        for hook in self._course.hooks:
            code = hook.code
            if code is not None and (code.co_filename, code.co_name) == (file, name) and line in _lines(code):
                yield hook, not start

    # -- tensors that come out ---------------------------------------------------------------------------------------

    def retaining(self, retain: Callable[..., None]) -> Callable[..., None]:
        @wraps(retain)
        def retained(tensor: Tensor) -> None:
            retain(tensor)
            if type(tensor.grad_fn).__name__ == COMPILED_NODE:
                self._retained.append(Retained(weakref.ref(tensor), f"tensor{list(tensor.shape)}", caller()))

        return aside(retained)

    def waiting_in(self, nodes: Callable[[], set[Any]]) -> list[tuple[Retained, Tensor]]:
        """Tensors that the backward to come goes through."""
        alive = [(one, t) for one in self._retained if (t := one.tensor()) is not None and t.grad is None]
        return [(one, t) for one, t in alive if t.grad_fn in nodes()] if alive else []

    def gone_through(self, waited: list[tuple[Retained, Tensor]]) -> None:
        self.emptied += [one for one, tensor in waited if tensor.grad is None]


def _uses(hook: Watched) -> int:
    """Backwards so far of a forward since it came, through its module and not through it."""
    return sum(meeting.used and not meeting.late for meeting in hook.meetings)


def _is_stand_in(frame: Frame) -> bool:
    return frame[0].endswith("stand_in.py") and frame[2] == "__call__" and "doctor" in frame[0]


def _frames(stack: str) -> list[Frame]:
    return [(file, int(line), name) for file, line, name in _FRAME.findall(stack)]


def _lines(code: types.CodeType) -> set[int]:
    return {line for _, _, line in code.co_lines() if line is not None}


# -- findings ---------------------------------------------------------------------------------------------------------


def of_compiled(hook: Watched, exam: Exam) -> Iterator[Finding]:
    compiler, number = exam.course.compiler, hook.number
    if without := compiler.without(hook):
        more = " or more" if without == LOOKS else ""
        yield said(
            hook, "TH224", f"{many(without, 'backward')}{more} ran through code that was compiled before it "
            "came; then something else had the code made anew, and that has it",
            f"{_at(hook)}.{hook.kind}(fn)\ntorch._dynamo.reset()         # forget the code that was made without it\n"
            "model = torch.compile(model)",
        )  # fmt: skip
    if names := compiler.left_out.get(number):
        yield said(
            hook, "TH225", f"it calls {names[0]}, which says that it changes nothing, and whose result nobody uses: "
            "the compiler left it out",
            '@torch.library.custom_op("my::look", mutates_args=("seen",))  # it writes to a tensor\n'
            "def look(value: Tensor, seen: Tensor) -> None:\n    seen.add_(value.norm())",
        )  # fmt: skip
    if exam.failure is None:
        yield from _recompiled(hook, compiler)
        yield from _broken(hook, exam)


def _at(hook: Watched) -> str:
    return "model" if hook.owner.name == "." else f'model.get_submodule("{hook.owner.name}")'


def _recompiled(hook: Watched, compiler: Compiler) -> Iterator[Finding]:
    again = compiler.recompiled.get(hook.number, [])
    if len(again) < HABIT:
        return
    refused = any(one.refused for one in again)
    if again[-1].alone:
        yield said(
            hook, "TH518", f"it is outside of the graph, and a frame of its own: {_times(again)}"
            + ("; then the compiler gave it up" if refused else ""), _DISABLED.format(_at(hook), hook.kind),
            lightly=not refused,
        )  # fmt: skip
    else:
        yield said(
            hook, "TH515", _times(again) + ("; then the compiler gave up, and it runs uncompiled" if refused else ""),
            _IN_A_TENSOR, lightly=not refused,
        )  # fmt: skip


def _times(again: list[Recompiled]) -> str:
    last, made = again[-1], sum(not one.refused for one in again)
    return f"{last.frame!r} was compiled {many(made, 'time')} more: {last.place} changes what it was made for"


_DISABLED = "{}.{}(torch.compiler.disable(fn))  # runs as it is; there is no graph around it to break"


_IN_A_TENSOR = (
    'module.register_buffer("seen", torch.zeros(()))  # a tensor\n'
    "def fn(module, args, output):\n    module.seen.add_(output.detach().norm())  # not a list, not a number of Python"
)


def _broken(hook: Watched, exam: Exam) -> Iterator[Finding]:
    compiler, module = exam.course.compiler, hook.owner.now()
    reasons = compiler.breaks.get(hook.number, [])
    if hook.kind in FULL and isinstance(module, nn.Module) and hook.calls is not None and hook.calls.count:
        inside = exam.course.runs_compiled(module) and module not in exam.course.compiled
        reasons = ["backward hooks of modules do not go into a graph"] * (inside and compiler.breaks_for_backward)
    if reasons:
        asked = "compiler.disable" in reasons[0]
        yield said(
            hook, "TH516", f"{many(len(reasons), 'graph break')}: {reasons[0]}",
            f'th.hook(model, fn, on="{hook.below}", at="grad")  # on parameters: they stay outside of the graph'
            if hook.kind in BACKWARD else _IN_A_TENSOR,
            lightly=asked,
        )  # fmt: skip


def limit_reached(exam: Exam) -> Iterator[Finding]:
    """The program ended because code was compiled too often."""
    compiler = exam.course.compiler
    compiler.collect()
    for hook in exam.hooks:
        again = compiler.recompiled.get(hook.number, [])
        if len(again) >= HABIT:
            yield said(
                hook, "TH517", f"{_times(again)}; that is the limit, and with fullgraph=True it may not run uncompiled",
                _DISABLED.format(_at(hook), hook.kind) if again[-1].alone else _IN_A_TENSOR,
            )  # fmt: skip
            return


def of_the_program(exam: Exam) -> Iterator[Finding]:
    for one in exam.course.compiler.emptied:
        yield finding(
            "TH226", f"retain_grad() on a {one.name} that compiled code gave: a backward went through that code, and "
            ".grad is None", _HOOK_INSIDE, target=one.name, by="retain_grad", place=one.caller.place,
            lightly=not one.caller.users,
        )  # fmt: skip
    for number in sorted(exam.fired_around):
        kind, by = exam.everywhere[number]
        if kind.startswith("register_module_forward"):
            yield finding(
                "TH413", "torch.compile(model) gave an OptimizedModule, which is called around the model: it fires for "
                f"both ({exam.wrapped_calls[0]})",
                "model.compile()  # in place of model = torch.compile(model): no module around it",
                by=kind, target="OptimizedModule", place=by.place, lightly=not by.users,
            )  # fmt: skip


_HOOK_INSIDE = (
    "def fn(module, args, output):  # a forward hook, registered before the model is compiled\n"
    "    output.register_hook(lambda grad: grad * 0.5)  # inside of the compiled code\n"
    'th.hook(model, fn, on="layer.*", at="grad")  # or the gradients of parameters, after it'
)


def given_none(hook: Watched) -> Finding:
    """A tensor hook on what compiled code gave."""
    return said(
        hook, "TH226", f"{many(hook.fired, 'firing')}, each with None: the tensor came out of compiled code, and the "
        "backward of that is one node which gives nothing for it", _HOOK_INSIDE,
    )  # fmt: skip
