"""Watch every PyTorch register function while an exam is open, and record what happens to each raw hook.

Hooks run as they would without the exam. The calls of a hook's function are observed, and the function stays as it is.
A function whose calls cannot be observed, such as a built-in function, is replaced with a proxy until the exam ends.
Then the PyTorch functions are restored.
"""

from __future__ import annotations

import gc
import re
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import wraps
from types import TracebackType
from typing import Any, Self

import torch.utils.checkpoint
from torch import Tensor, nn
from torch.nn.modules import module as module_module
from torch.optim import Optimizer
from torch.optim import optimizer as optimizer_module
from torch.utils.hooks import RemovableHandle

from tenterhook import torch_internals as private
from tenterhook.doctor.observe.hook_owner import Owner
from tenterhook.doctor.observe.hook_record import FULL, Calls, HookRecord, count_passed, new_record
from tenterhook.doctor.observe.model_index import Caller, ModelIndex, caller
from tenterhook.doctor.observe.source import bare
from tenterhook.doctor.patch.attribution import CalledCode
from tenterhook.doctor.patch.compiler import uncompiled
from tenterhook.doctor.patch.events import ProgramEvents
from tenterhook.doctor.patch.proxy import HookProxy
from tenterhook.doctor.patch.sight import HookSight
from tenterhook.rig import Rig
from tenterhook.switch import is_off
from tenterhook.torch_internals import compiler as dynamo
from tenterhook.torch_internals.code_owner import is_users

#: for each class, the register functions that are watched
WATCHED: dict[Any, tuple[str, ...]] = {
    Tensor: ("register_hook", "register_post_accumulate_grad_hook"),
    nn.Module: (
        "register_forward_pre_hook",
        "register_forward_hook",
        "register_full_backward_pre_hook",
        "register_full_backward_hook",
        "register_backward_hook",
        "register_state_dict_pre_hook",
        "register_state_dict_post_hook",
        "register_load_state_dict_pre_hook",
        "register_load_state_dict_post_hook",
    ),
    Optimizer: (
        "register_step_pre_hook",
        "register_step_post_hook",
        "register_state_dict_pre_hook",
        "register_state_dict_post_hook",
        "register_load_state_dict_pre_hook",
        "register_load_state_dict_post_hook",
    ),
}


#: the register functions that hook every module or every optimizer in the process
GLOBAL = {
    module_module: (
        "register_module_forward_pre_hook",
        "register_module_forward_hook",
        "register_module_backward_hook",
        "register_module_full_backward_pre_hook",
        "register_module_full_backward_hook",
    ),
    optimizer_module: ("register_optimizer_step_pre_hook", "register_optimizer_step_post_hook"),
}


#: the beginning of PyTorch's warning about the .grad of a non-leaf tensor
READ_NO_LEAF = "The .grad attribute of a Tensor that is not a leaf"


#: part of PyTorch's warning about global module hooks and torch.compile
FIRES_TWICE = "this will cause the hooks to fire an extra time for the `OptimizedModule`"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A registration that PyTorch refused."""

    kind: str
    target: str
    fact: str
    grad_enabled: bool
    parameter: bool
    caller: Caller


@dataclass(frozen=True, slots=True)
class Failure:
    """The error that ended an exam's block."""

    error: BaseException
    text: str
    place: str


@dataclass(frozen=True, slots=True)
class _Seat:
    """A substitute for the handle of a hook that was registered before the exam."""

    id: int
    hooks_dict_ref: weakref.ref[Any]


class Recording:
    """A context manager that watches every hook registered in its block and records each hook in `hooks`."""

    def __init__(self, model: nn.Module | None = None) -> None:
        #: the place in the code that created the exam; the ranks use it to match their exams
        self.opened_at = caller().place
        self._model = weakref.ref(model) if model is not None else None
        #: False if `TENTERHOOK=0` is set
        self.watches = not is_off()
        self.places = ModelIndex()
        self.events = ProgramEvents(self.places)
        #: each rig, with the place in the code that attached it
        self.rigs: list[tuple[Rig, str]] = []
        self.refusals: list[Refusal] = []
        self.failure: Failure | None = None
        #: places in the code that read the .grad of a non-leaf tensor
        self.warned: list[str] = []
        #: places in the code that called a `torch.compile` wrapper while a global module hook was registered
        self.wrapped_calls: list[str] = []
        #: places in the code that loaded pickled handles
        self.loaded_handles: list[str] = []
        #: hooks that apply to every module or every optimizer, as (register function, caller)
        self.everywhere: list[tuple[str, Caller]] = []
        self._global_handles: list[Any] = []
        #: indices in `everywhere` of the hooks that were active during a call in `wrapped_calls`
        self.fired_around: set[int] = set()
        #: files of the user's code that register hooks
        self.files: set[str] = set()
        self._seats: dict[int, HookRecord] = {}
        self._sight = HookSight(self.events)
        self._undo = ExitStack()

    @property
    def hooks(self) -> list[HookRecord]:
        """Return the record of each watched hook, in the order of registration."""
        return self.events.hooks

    # -- opening and closing -----------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        private.require(private.Capability.DOCTOR)
        if not self.watches:
            return self
        events = self.events
        self.places.begin()
        with ExitStack() as undo:
            for owner, names in WATCHED.items():
                for name in names:
                    self._replace(undo, owner, name, self._registering(getattr(owner, name), name))
            for place, names in GLOBAL.items():
                for name in names:
                    self._replace(undo, place, name, self._registering_globally(getattr(place, name), name))
            entries: tuple[tuple[tuple[Any, str], Callable[..., Any]], ...] = (
                (private.CLIP_ENTRY, events.clipping),
                (private.OUTPUT_ENTRY, events.returning),
                ((torch.amp.GradScaler, "scale"), events.scaling),
                ((torch.utils.checkpoint, "check_backward_validity"), events.checking_inputs),
                ((torch, "compile"), events.compiling),
                ((Tensor, "retain_grad"), events.compiler.retaining),
                ((RemovableHandle, "remove"), self._removing),
                ((RemovableHandle, "__setstate__"), self._loading_a_handle),
                ((warnings, "showwarning"), self._warning),
                ((nn.Module, "__init__"), self.places.making),
                ((nn.Module, "__setstate__"), self.places.making),
                ((Rig, "__init__"), self._attaching),
                ((nn.parallel.DistributedDataParallel, "__init__"), events.spread.wrapping),
            )
            for (where, name), wrapped in entries:
                self._replace(undo, where, name, wrapped(getattr(where, name)))
            self._sight.wrap(undo, self._replace)
            for hooks, call in zip(private.EVERY_STEP, (events.before_step, events.after_step), strict=True):
                undo.callback(private.insert_hook(hooks, call))
            undo.callback(self._listen())
            events.timeline.open = True
            events.compiler.listen()
            events.compiler.models.update(filter(dynamo.is_compiled, self.places.modules()))
            undo.callback(self._close)
            model = self._model() if self._model is not None else None
            if model is not None:
                self._adopt(model)
            self._undo = undo.pop_all()
        events.spread.begin(self.places.modules(), self._undo)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.watches:
            self._end(error, tb)
            self._restore()

    def _end(self, error: BaseException | None, tb: TracebackType | None) -> None:
        """Record the error that ended the block, and read the compiler's last records."""
        if error is not None and not isinstance(error, SystemExit):
            self.failure = Failure(error, f"{type(error).__name__}: {error}", _place(tb))
            codes = {frame.f_code for frame, _ in traceback.walk_tb(tb)}
            for hook in self.hooks:
                if hook.raised is not None and hook.code in codes:
                    hook.raised = self.failure.text
        gc.collect()
        self.events.compiler.collect()

    def _restore(self) -> None:
        """Restore every PyTorch function, and drop the error, because its traceback keeps tensors alive."""
        self._undo.close()
        self.failure = None if self.failure is None else Failure(Exception(), self.failure.text, self.failure.place)

    def _close(self) -> None:
        """Stop observing, and replace each proxy with its function."""
        timeline = self.events.timeline
        timeline.open = False
        self._sight.close()
        self.events.compiler.close()
        for module in self.places.modules():  # a copied module contains copied proxies
            for slot in private.MODULE_SLOTS:
                hooks = private.hooks_in(module, slot)
                hooks.update({id: fn.without(timeline) for id, fn in hooks.items() if type(fn) is HookProxy})
        for hook in self.hooks:
            seats = private.registered_in(hook.handle)
            seated = seats.get(hook.handle.id) if seats is not None else None
            if seats is not None and type(seated) is HookProxy:
                seats[hook.handle.id] = seated.without(timeline)
            elif type(inner := getattr(seated, "hook", None)) is HookProxy:  # torch wraps some hooks in an object
                seated.hook = inner.without(timeline)  # type: ignore[union-attr]

    @staticmethod
    def _replace(undo: ExitStack, owner: Any, name: str, new: Any) -> None:
        own = vars(owner).get(name)

        def restore() -> None:
            if vars(owner).get(name) is not new:
                return  # the program itself has patched the function
            if own is None:
                delattr(owner, name)
            else:
                setattr(owner, name, own)

        undo.callback(restore)
        setattr(owner, name, new)

    # -- registering -------------------------------------------------------------------------------------------------

    def _registering(self, register: Callable[..., Any], kind: str) -> Callable[..., Any]:
        @wraps(register)
        def registered(owner: Any, hook: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or not callable(hook) or not self.events.timeline.open:
                return register(owner, hook, *args, **kwargs)
            by = caller()
            called = self._sight.observable(hook) if not by.ours else None
            if by.ours or (not by.users and called is None):
                # A library may search the registered hooks for its own function or object.
                return register(owner, hook, *args, **kwargs)
            record = self._record(hook, kind, owner, by, with_kwargs=bool(kwargs.get("with_kwargs")))
            given = hook if called is not None else HookProxy(hook, record)
            before = private.count_hooks(owner, kind)
            try:
                handle = register(owner, given, *args, **kwargs)
            except (RuntimeError, TypeError, AttributeError) as error:
                self._refuse(kind, owner, str(error), by)
                raise
            if handle is None:  # a subclass overrides the register function and returns no handle
                return handle
            record.overwrote = before is not None and private.count_hooks(owner, kind) == before
            self._seat(record, handle, called)
            return handle

        return uncompiled(registered)

    def _registering_globally(self, register: Callable[..., Any], kind: str) -> Callable[..., Any]:
        @wraps(register)
        def registered(*args: Any, **kwargs: Any) -> Any:
            self.everywhere.append((kind, caller()))
            self._global_handles.append(handle := register(*args, **kwargs))
            return handle

        return registered

    def _record(self, hook: Any, kind: str, owner: Any, by: Caller, *, with_kwargs: bool) -> HookRecord:
        self.places.note_thread()
        self.events.spread.look()
        if is_users(by.file):
            self.files.add(by.file)
        place = None
        if isinstance(owner, nn.Module):
            place = self.places.module(owner)
        elif isinstance(owner, nn.Parameter):
            place = self.places.parameter(owner)
        events = self.events
        return new_record(
            hook,
            kind,
            owner,
            place,
            by,
            timeline=events.timeline,
            firings=events.firings,
            distribution=events.spread,
            passed=count_passed(kind, with_kwargs=with_kwargs),
        )

    def _seat(self, record: HookRecord, handle: Any, called: CalledCode | None) -> None:
        record.number, record.handle = len(self.hooks), handle
        if called is not None:
            self._sight.add(record, called)
        self._seats[handle.id] = record
        self.hooks.append(record)
        self.events.compiler.came(record)
        if record.waits:
            self.events.firings.waiting[record.number] = record
        place = record.owner.place
        module = place.module() if place is not None else None
        root = place.root() if place is not None else None
        if root is not None and called is not None:
            self.events.watch_passes(root)
        if module is not None and record.kind in FULL:
            record.calls = self.events.calls.setdefault(module, Calls())
        elif module is not None and record.owner.is_parameter:
            record.calls = self.events.uses_of(module)

    def _refuse(self, kind: str, owner: Any, fact: str, by: Caller) -> None:
        if not by.users:
            return
        name = Owner(owner, self.places.parameter(owner) if isinstance(owner, nn.Parameter) else None).name
        parameter = isinstance(owner, nn.Parameter)
        self.refusals.append(Refusal(kind, name, fact, torch.is_grad_enabled(), parameter, by))

    def _adopt(self, model: nn.Module) -> None:
        """Watch the hooks that are already registered on the model."""
        slots = [(m, slot, by) for m in model.modules() for slot, by in private.registered_by(m).items()]
        tensor_slots = tuple(zip(private.HOOK_SLOTS, WATCHED[Tensor], strict=True))
        slots += [(p, slot, by) for p in model.parameters() for slot, by in tensor_slots]  # type: ignore[misc]
        for owner, slot, kind in slots:
            hooks = getattr(owner, slot, None) or {}
            for id, fn in list(hooks.items()):
                code = getattr(bare(fn), "__code__", None)
                file = code.co_filename if code is not None else "?"
                line = f"{file}:{code.co_firstlineno}" if code is not None else file
                by = Caller(line, is_users(file), not is_users(file) and "tenterhook" in type(fn).__module__, file)
                if by.ours or type(fn) is HookProxy:
                    continue
                called = self._sight.observable(fn)
                record = self._record(fn, kind, owner, by, with_kwargs=private.gets_kwargs(owner, slot, id))
                if called is None:
                    hooks[id] = HookProxy(fn, record)
                self._seat(record, _Seat(id, weakref.ref(hooks)), called)

    # -- other watched functions -------------------------------------------------------------------------------------

    def _removing(self, remove: Callable[..., Any]) -> Callable[..., Any]:
        def removed(handle: Any) -> None:
            record = self._seats.get(getattr(handle, "id", -1))
            mine = record is not None and private.registered_in(handle) is private.registered_in(record.handle)
            if record is not None and mine and record.removed is None and record.alive:
                record.removed = self.events.timeline.now()
                if self.events.timeline.backwards in record.checkpointed.values():
                    self.events.missed.append(record)
            remove(handle)

        return removed

    def _loading_a_handle(self, load: Callable[..., Any]) -> Callable[..., Any]:
        def loaded(handle: Any, state: Any) -> None:
            frame = sys._getframe(1)
            while frame is not None:
                if frame.f_code.co_filename.endswith(
                    ("torch/serialization.py", "/pickle.py", "_weights_only_unpickler.py")
                ):
                    self.loaded_handles.append(caller().place)
                    break
                frame = frame.f_back  # type: ignore[assignment]
            load(handle, state)

        return loaded

    def _warning(self, show: Callable[..., Any]) -> Callable[..., Any]:
        def shown(message: Any, category: Any, filename: str, lineno: int, *args: Any, **kwargs: Any) -> None:
            for text, places in ((READ_NO_LEAF, self.warned), (FIRES_TWICE, self.wrapped_calls)):
                if text in str(message):
                    place = f"{filename}:{lineno}"
                    if text is FIRES_TWICE:
                        there = (handle.id in (private.registered_in(handle) or ()) for handle in self._global_handles)
                        self.fired_around |= {number for number, alive in enumerate(there) if alive}
                    if place in places:
                        return  # Python would have shown the warning only once
                    places.append(place)
            show(message, category, filename, lineno, *args, **kwargs)

        return shown

    @staticmethod
    def _listen() -> Callable[[], None]:
        """Show the two relevant PyTorch warnings every time, even in a second exam. Return an undo function."""
        filtered = (f[0] for f in warnings.filters if f[1] is None and issubclass(UserWarning, f[2]))
        if next(filtered, "default") == "error":
            return lambda: None
        warnings.filterwarnings("always", message=f".*({re.escape(READ_NO_LEAF)}|{re.escape(FIRES_TWICE)})")
        mine = warnings.filters[0]
        return lambda: warnings.filters.remove(mine) if mine in warnings.filters else None  # type: ignore[attr-defined]

    def _attaching(self, init: Callable[..., Any]) -> Callable[..., Any]:
        def attached(rig: Rig, *args: Any, **kwargs: Any) -> None:
            init(rig, *args, **kwargs)
            self.rigs.append((rig, caller().place))

        return attached


def _place(tb: TracebackType | None) -> str:
    """Return the innermost line of the user's code in a traceback."""
    frames = [f"{f.filename}:{f.lineno}" for f in traceback.extract_tb(tb) if is_users(f.filename)]
    return frames[-1] if frames else "?"
