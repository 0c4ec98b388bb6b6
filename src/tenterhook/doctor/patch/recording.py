"""Watch every PyTorch register function while an exam is open, and record what happens to each raw hook.

Hooks run as they would without the exam. The calls of a hook's function are observed, and the function stays as it is.
A function whose calls cannot be observed, such as a built-in function, is replaced with a proxy until the exam ends.
Then the PyTorch functions are restored.
"""

from __future__ import annotations

import gc
import inspect
import os
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial, wraps
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Self

import torch.fx
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from tenterhook import torch_internals as private
from tenterhook.doctor.child_exam import ChildExams
from tenterhook.doctor.observe.firing_sample import is_plain
from tenterhook.doctor.observe.hook_kinds import FORWARD, FULL, MULTI, TENSOR, WATCHED
from tenterhook.doctor.observe.hook_owner import Owner
from tenterhook.doctor.observe.hook_record import SAMPLES, HookRecord, count_passed, new_record
from tenterhook.doctor.observe.model_index import Caller, ModelIndex, caller
from tenterhook.doctor.observe.observer import Observer
from tenterhook.doctor.observe.usage import Calls
from tenterhook.doctor.observe.values.variables import variables_of
from tenterhook.doctor.patch.calls.attribution import CalledCode
from tenterhook.doctor.patch.compiler import uncompiled
from tenterhook.doctor.patch.events import ProgramEvents
from tenterhook.doctor.patch.loaded_handles import LoadedHandles
from tenterhook.doctor.patch.process_hooks import GLOBAL, ProcessHooks
from tenterhook.doctor.patch.proxy import HookProxy
from tenterhook.doctor.patch.saved_tensors import SavedTensors
from tenterhook.doctor.patch.sight import HookSight
from tenterhook.doctor.reading.functions import bare
from tenterhook.rig import Rig
from tenterhook.switch import is_off
from tenterhook.torch_internals import compiler as dynamo
from tenterhook.torch_internals.code_owner import is_users

#: the file of the function that `torch.multiprocessing` gives to each process
_SPAWN = inspect.getfile(torch.multiprocessing.spawn)  # type: ignore[attr-defined]
#: the file of the function that a `DataLoader` gives to each of its processes
_WORKER = inspect.getfile(torch.utils.data._utils.worker)


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
        self._process = os.getpid()
        self.places = ModelIndex()
        self.events = ProgramEvents(self.places)
        #: each rig, with the place in the code that attached it
        self.rigs: list[tuple[Rig, str]] = []
        self.refusals: list[Refusal] = []
        self.failure: Failure | None = None
        self.loaded_handles = LoadedHandles()
        self.process = ProcessHooks()
        #: files of the user's code that register hooks
        self.files: set[str] = set()
        self._seats: dict[int, HookRecord] = {}
        self._sight = HookSight(self.events)
        #: hooks on saved tensors
        self.saved_tensors = SavedTensors(self.events.timeline, self.events.calls_of_code, self._sight.observable)
        #: the exams of the processes that the program starts
        self.children: ChildExams | None = None
        self._undo = ExitStack()

    @property
    def program_files(self) -> set[str]:
        """Return the script and the other files of the program that register hooks."""
        script = os.path.abspath(sys.argv[0]) if sys.argv and sys.argv[0].endswith(".py") else ""
        return {*self.files, script} if script and is_users(script) else self.files

    @property
    def lost(self) -> bool:
        """Return True if the program has ended the observation of calls."""
        return self._sight.lost

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
                for name in filter(partial(hasattr, owner), names):
                    self._replace(undo, owner, name, self._registering(getattr(owner, name), name))
            for place, names in GLOBAL.items():
                for name in names:
                    observes = partial(self.process.registering_globally, name)
                    self._replace(undo, place, name, events.errors.around(observes)(getattr(place, name)))
            observed: tuple[tuple[tuple[Any, str], Callable[..., Observer]], ...] = (
                (private.CLIP_ENTRY, events.clipping),
                (private.OUTPUT_ENTRY, events.module_calls.returning),
                ((torch.amp.GradScaler, "scale"), events.scaling),
                ((torch.utils.checkpoint, "check_backward_validity"), events.checking_inputs),
                ((torch, "compile"), events.compiling),
                ((Tensor, "retain_grad"), events.compiler.retaining),
                ((RemovableHandle, "remove"), self._removing),
                ((torch.autograd.graph.saved_tensors_hooks, "__init__"), self.saved_tensors.creating),
                ((nn.parallel.DistributedDataParallel, "register_comm_hook"), self.process.registering_communication),
                ((RemovableHandle, "__setstate__"), self.loaded_handles.loading),
                ((nn.Module, "__init__"), self.places.making),
                ((nn.Module, "__setstate__"), self.places.making),
                ((nn.Module, "__setstate__"), self.loaded_handles.loading_module),
                ((Rig, "__init__"), self._attaching),
                ((torch.optim.lr_scheduler.LRScheduler, "__init__"), events.scheduling),
                ((torch.fx.Tracer, "trace"), events.tracing),
                ((nn.parallel.DistributedDataParallel, "__init__"), events.spread.wrapping),
            )
            for (where, name), observe in observed:
                self._replace(undo, where, name, events.errors.around(observe)(getattr(where, name)))
            wrapped: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
                (BaseProcess, "start", self._starting),
                (torch.autograd.graph, MULTI, self._registering_on_several),
                (warnings, "showwarning", self.process.warning),
            )
            for where, name, wrap in wrapped:
                self._replace(undo, where, name, wrap(getattr(where, name)))
            self._sight.wrap(undo, self._replace)
            for hooks, note in zip(private.EVERY_STEP, (events.before_step, events.after_step), strict=True):
                undo.callback(private.insert_hook(hooks, events.errors.containing(note)))
            undo.callback(self.process.listen())
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
        with self.events.errors.contained():
            self.events.compiler.collect()

    def _abandon(self) -> None:
        """Restore every PyTorch function in a process that was forked during the exam."""
        if os.getpid() != self._process:
            self._undo.close()

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
            new = None
            if not torch.compiler.is_compiling() and callable(hook) and self.events.timeline.open:
                with self.events.errors.contained():
                    new = self._new(owner, hook, kind, with_kwargs=bool(kwargs.get("with_kwargs")))
            if new is None:
                return register(owner, hook, *args, **kwargs)
            record, called, before = new
            given = hook if called is not None else HookProxy(hook, record, self.events.errors)
            try:
                handle = register(owner, given, *args, **kwargs)
            except (RuntimeError, TypeError, AttributeError) as error:
                with self.events.errors.contained():
                    self._refuse(kind, owner, str(error), record.caller)
                raise
            if handle is not None:  # otherwise, a subclass overrides the register function and returns no handle
                with self.events.errors.contained():
                    record.overwrote = before is not None and private.count_hooks(owner, kind) == before
                    self._seat(record, handle, called)
                    frame = sys._getframe(1)
                    record.variables = variables_of(hook, frame) if record.caller.users else []
                    self._sight.watch_returns(frame, self._look)
            return handle

        return uncompiled(registered)

    def _new(
        self, owner: Any, hook: Any, kind: str, *, with_kwargs: bool
    ) -> tuple[HookRecord, CalledCode | None, int | None] | None:
        """Return the record of a hook that is being registered, its code, and how many hooks its owner has.

        Return None for a hook that the exam leaves alone: a library may search the registered hooks for its own object.
        """
        by = caller()
        called = self._sight.observable(hook) if not by.ours else None
        if by.ours or (not by.users and (called is None or kind in private.STATE_REGISTRARS)):
            return None
        record = self._record(hook, kind, owner, by, with_kwargs=with_kwargs)
        return record, called, private.count_hooks(owner, kind)

    def _look(self) -> None:
        """Look at the hooks before the objects of a function of the program are freed."""

    def _registering_on_several(self, register: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(register)
        def registered(tensors: Any, fn: Any, **kwargs: Any) -> Any:
            owners = list(tensors)
            handle = register(owners, fn, **kwargs)
            with self.events.errors.contained():
                by = caller()
                called = self._sight.observable(fn) if by.users and owners else None
                if called is not None:
                    record = self._record(fn, MULTI, owners[0], by, with_kwargs=False)
                    self._seat(record, private.first_handle(handle), called)
            return handle

        return registered

    def _starting(self, start: Callable[..., None]) -> Callable[..., None]:
        @wraps(start)
        def started(process: Any) -> None:
            target = getattr(process, "_target", None)
            file = getattr(getattr(target, "__code__", None), "co_filename", "")
            if self.children is not None and (is_users(file) or file == _SPAWN):
                self.events.children += 1
                self.children.around(process, start, self._abandon)
            else:
                self.events.children += file == _WORKER
                start(process)

        return started

    def _record(self, hook: Any, kind: str, owner: Any, by: Caller, *, with_kwargs: bool) -> HookRecord:
        self.places.note_thread()
        self.events.spread.look()
        if is_users(by.file):
            self.files.add(by.file)
        place = self.places.module(owner) if isinstance(owner, nn.Module) else None
        if isinstance(owner, nn.Parameter):
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
        if record.kind != MULTI:
            self._seats[handle.id] = record
        self.hooks.append(record)
        self.events.compiler.came(record)
        if record.waits:
            self.events.firings.waiting[record.number] = record
        if record.kind == TENSOR[0] and record.owner.node is not None:
            alike = sum(one.caller.place == record.caller.place for one in self.hooks[-SAMPLES - 1 :])
            if alike <= SAMPLES:
                self.events.branching[record.owner.node] = record
                if isinstance(tensor := record.owner.now(), Tensor) and is_plain(tensor):
                    self.events.hooked.append((record, tensor.detach()))
        place = record.owner.place
        module = place.module() if place is not None else None
        root = place.root() if place is not None else None
        if place is not None and root is not None and called is not None:
            self.events.module_calls.watch_passes(root, place.name)
        if module is not None and record.kind in FORWARD:
            record.bypassed = self.events.module_calls.watch_methods(module)
        if module is not None and record.kind in FULL:
            record.calls = self.events.module_calls.of_hooked.setdefault(module, Calls())
        elif module is not None and record.owner.is_parameter and not self.events.compiles_or_runs(module):
            record.calls = self.events.module_calls.uses_of(module)

    def _refuse(self, kind: str, owner: Any, fact: str, by: Caller) -> None:
        if not by.users:
            return
        parameter = isinstance(owner, nn.Parameter)
        name = Owner(owner, self.places.parameter(owner) if parameter else None).name
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
                    hooks[id] = HookProxy(fn, record, self.events.errors)
                self._seat(record, _Seat(id, weakref.ref(hooks)), called)

    # -- other watched functions -------------------------------------------------------------------------------------

    def _removing(self, handle: Any) -> Observer:
        record = self._seats.get(getattr(handle, "id", -1))
        mine = record is not None and private.registered_in(handle) is private.registered_in(record.handle)
        if record is not None and mine and record.removed is None and record.alive:
            record.removed = self.events.timeline.now()
            if self.events.timeline.backwards in record.checkpointed.values():
                self.events.missed.append(record)
        elif record is not None and record.removed is not None:
            record.removed_again += self.events.timeline.passes > record.removed.passes
        yield

    def _attaching(self, rig: Rig, *_: Any, **__: Any) -> Observer:
        yield
        self.rigs.append((rig, caller().place))


def _place(tb: TracebackType | None) -> str:
    """Return the innermost line of the user's code in a traceback."""
    frames = [f"{f.filename}:{f.lineno}" for f in traceback.extract_tb(tb) if is_users(f.filename)]
    return frames[-1] if frames else "?"
