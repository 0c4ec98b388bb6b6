"""Count the calls of modules, and find out in which pass of which model a hook fires."""

from __future__ import annotations

import inspect
import weakref
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

from tenterhook import torch_internals as private
from tenterhook.doctor.observe.circumstances import has_equal_halves
from tenterhook.doctor.observe.hook_record import SAMPLES
from tenterhook.doctor.observe.observer import Observer
from tenterhook.doctor.observe.timeline import Timeline
from tenterhook.doctor.observe.usage import Calls
from tenterhook.doctor.observe.values.stored import Pass, weak
from tenterhook.doctor.patch.calls.attribution import called_code, tracer
from tenterhook.doctor.patch.calls.code_calls import CodeCalls, arguments

#: the file of the functions that call the hooks of a module
_MODULE = inspect.getfile(nn.Module)


class ModuleCalls:
    """Observes the calls of modules that have hooks, or that contain modules with hooks."""

    def __init__(self, timeline: Timeline, calls_of_code: CodeCalls) -> None:
        self._timeline, self._calls_of_code = timeline, calls_of_code
        #: calls to modules with backward hooks
        self.of_hooked: weakref.WeakKeyDictionary[nn.Module, Calls] = weakref.WeakKeyDictionary()
        #: calls to modules with hooked parameters, counted until no hook is waiting for its first firing
        self._uses: weakref.WeakKeyDictionary[nn.Module, Calls] = weakref.WeakKeyDictionary()
        #: the code of the modules whose calls are counted, by id
        self._counted: dict[int, CodeType] = {}
        #: calls of the modules that contain hooked modules
        self.around: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
        #: calls of methods of hooked modules, while the module itself was not called
        self._bypassed: weakref.WeakKeyDictionary[nn.Module, dict[str, int]] = weakref.WeakKeyDictionary()
        #: the modules whose calls are passes
        self._watched: weakref.WeakSet[nn.Module] = weakref.WeakSet()

    def returning(self, hook: Any, out: Any) -> Observer:
        """Observe the function to which PyTorch passes each output of a module with backward hooks."""
        calls = self.of_hooked.get(hook.module)
        if calls is not None:
            calls.note(out)
        yield

    def uses_of(self, module: nn.Module) -> Calls | None:
        """Start counting the calls to a module. Counting stops when no hook is waiting for its first firing."""
        called = called_code(module.forward)
        if called is None:
            return None
        self._counted[id(called.code)] = called.code
        self._calls_of_code.add(called.code, self._called)
        return self._uses.setdefault(module, Calls())

    def watch_passes(self, root: nn.Module, name: str) -> None:
        """Observe the calls of a model, of its method `generate`, and of the modules that contain the named one."""
        around = [root]
        for part in name.split(".")[:-1]:
            child = private.child_modules(around[-1]).get(part)
            if child is None:
                break
            around.append(child)
        for module in around:
            if module in self._watched:
                continue
            self._watched.add(module)
            for method in (module.forward, getattr(module, "generate", None)):
                called = called_code(inspect.unwrap(method)) if method is not None else None
                if called is not None:
                    self._calls_of_code.add(called.code, self._pass)

    def watch_methods(self, module: nn.Module) -> dict[str, int]:
        """Count the calls of the methods of which `forward` consists, if the module itself is not called."""
        counts = self._bypassed.setdefault(module, {})
        forward = called_code(module.forward)
        if forward is not None:
            self._calls_of_code.add(forward.code, self._forward_called)
        for name in forward.code.co_names if forward is not None else ():
            method = getattr(type(module), name, None)
            called = called_code(method) if inspect.isfunction(method) and not hasattr(nn.Module, name) else None
            if called is not None:
                self._calls_of_code.add(called.code, self._method_called)
        return counts

    def _forward_called(self, frame: FrameType) -> None:
        """Count a call of `forward` that does not come from a call of the module."""
        step = frame.f_back
        if step is not None and step.f_code.co_filename == _MODULE:
            return
        module = next(iter(arguments(frame)[0]), None)
        counts = self._bypassed.get(module) if isinstance(module, nn.Module) else None
        if counts is None or counts.get("forward", 0) >= SAMPLES or tracer(arguments(frame)[0]):
            return
        while step is not None:
            if step.f_code.co_filename == _MODULE and step.f_locals.get("self") is module:
                return  # for example, a library has replaced `forward` of the module
            step = step.f_back
        counts["forward"] = counts.get("forward", 0) + 1

    def _method_called(self, frame: FrameType) -> None:
        module = next(iter(arguments(frame)[0]), None)
        counts = self._bypassed.get(module) if isinstance(module, nn.Module) else None
        name = frame.f_code.co_name
        if module is None or counts is None or counts.get(name, 0) >= SAMPLES:
            return
        step = frame.f_back
        while step is not None:
            if step.f_code.co_name == "forward" and step.f_locals.get("self") is module:
                return
            step = step.f_back
        counts[name] = counts.get(name, 0) + 1

    def _pass(self, frame: FrameType) -> Observer:
        model = next(iter(arguments(frame)[0]), None)
        if not isinstance(model, nn.Module) or model not in self._watched:
            self._timeline.others[type(model)] += 1
            yield
            return
        self.around[model] = self.around.get(model, 0) + 1
        if self._timeline.within is not None:
            yield
            return
        self._timeline.passes += 1
        doubled = self._timeline.passes <= SAMPLES and not torch.is_grad_enabled() and _has_equal_halves(frame)
        self._timeline.within = Pass(self._timeline.passes, frame.f_code.co_name, weak(model), doubled)
        try:
            yield
        finally:
            self._timeline.within = None
            self._timeline.look_at_stored()

    def stop_counting(self) -> None:
        """Stop counting the calls to modules."""
        for code in self._counted.values():
            self._calls_of_code.remove(code, self._called)
        self._counted.clear()

    def _called(self, frame: FrameType) -> None:
        module = next(iter(arguments(frame)[0]), None)
        if isinstance(module, nn.Module) and (uses := self._uses.get(module)) is not None:
            uses.count += 1
            uses.without_grad += not torch.is_grad_enabled()


def _has_equal_halves(frame: FrameType) -> bool:
    """Return True if the batch of a model is the same twice, as in guided sampling."""
    positional, keywords = arguments(frame)
    return has_equal_halves((*positional[1:], *keywords.values()))
