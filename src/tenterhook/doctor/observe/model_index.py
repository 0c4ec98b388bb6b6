"""Find the name of any module or parameter in the process, and find the code that called a function."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from tenterhook import torch_internals as private
from tenterhook.doctor.observe.observer import Observer
from tenterhook.resolve.targets import parameter_name, walk
from tenterhook.torch_internals.code_owner import is_ours, is_users

_HERE = str(Path(__file__).parents[1])


@dataclass(frozen=True, slots=True)
class Caller:
    """The place in the code that called a watched function."""

    #: file:line of the innermost frame in the user's code, or the caller's file if no such frame is on the stack
    place: str
    #: True if the user's code called the function directly
    users: bool
    #: True if tenterhook called the function directly
    ours: bool
    file: str


def caller() -> Caller:
    """Find the caller of the watched function: the nearest frame outside the doctor."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    nearest = frame.f_code.co_filename if frame is not None else "?"
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    found = frame.f_code.co_filename if frame is not None else "?"
    place = f"{found}:{frame.f_lineno}" if frame is not None else nearest
    return Caller(place, is_users(nearest), is_ours(nearest), found)


@dataclass(frozen=True, slots=True)
class Place:
    """The position that a module or a parameter has in a model."""

    name: str
    #: the module itself, or the module that owns the parameter
    module: weakref.ref[nn.Module]
    root: weakref.ref[nn.Module]
    #: the class of the root, which is still needed after the root has been deleted
    model: type = nn.Module
    #: the name of the parameter in its module; empty if the place is a module
    key: str = ""
    #: the class of another model that also contains the module, or None
    other: type | None = None


def original_module(module: nn.Module) -> nn.Module:
    """Return the model inside any wrappers that `torch.compile` added."""
    while isinstance(inner := private.child_modules(module).get("_orig_mod"), nn.Module):
        module = inner
    return module


class ModelIndex:
    """An index that finds the place of a module or parameter. A failed or outdated lookup rebuilds the index."""

    def __init__(self) -> None:
        self._parameters: dict[int, Place] = {}
        self._modules: dict[int, Place] = {}
        self._made: dict[int, weakref.ref[nn.Module]] = {}
        #: the ids of modules whose names in the index are not those of their attributes, for example in a wrapper
        self._renamed: set[int] = set()
        self._threads: set[int] = set()

    def begin(self) -> None:
        """Find the modules that already exist.

        Call this method before hooks fire in other threads. `gc.get_objects` adds references to tuples that PyTorch is
        still filling, and PyTorch fails if such a tuple has a second reference.
        """
        self._made = {id(m): weakref.ref(m) for m in gc.get_objects() if issubclass(type(m), nn.Module)}

    def making(self, module: nn.Module, *_: Any, **__: Any) -> Observer:
        """Observe the creation of a module."""
        yield
        self._made[id(module)] = weakref.ref(module)

    def note_thread(self) -> None:
        self._threads.add(threading.get_ident())

    @property
    def several_threads(self) -> bool:
        """Return True if more than one thread ran a backward pass or registered a hook."""
        return len(self._threads) > 1

    def parameter(self, tensor: Tensor) -> Place | None:
        for fresh in (False, True):
            if fresh:
                self.look()
            place = self._parameters.get(id(tensor))
            module = place.module() if place is not None else None
            if place is not None and module is not None and private.own_parameters(module).get(place.key) is tensor:
                return place
        return None

    def module(self, module: nn.Module) -> Place | None:
        for fresh in (False, True):
            if fresh:
                self.look()
            place = self._modules.get(id(module))
            if place is not None and place.module() is module and (fresh or self._is_there(place, module)):
                return place
        return None

    def _is_there(self, place: Place, module: nn.Module) -> bool:
        """Return False if a module has left its place since the index was built."""
        return id(module) in self._renamed or _module_at(place) is module

    def of_id(self, tensor_id: int) -> Place | None:
        """Look up the place of an existing parameter by id, without rebuilding the index."""
        return self._parameters.get(tensor_id)

    def modules(self) -> list[nn.Module]:
        """List the existing modules, except TorchScript modules, which do not store their submodules in `_modules`."""
        found = [m for ref in list(self._made.values()) if (m := ref()) is not None and "_modules" in m.__dict__]
        return [m for m in found if not isinstance(m, torch.jit.ScriptModule)]

    def look(self) -> None:
        """Rebuild the index."""
        modules = self.modules()
        children = ((m, c) for m in modules for c in list(private.child_modules(m).values()) if c is not None)
        inner = {id(child) for module, child in children if child is not module}
        found: tuple[dict[int, Place], dict[int, Place]] = ({}, {})
        # If modules contain each other, none of them is a root. The module that was created first serves as the root.
        for root in (*(m for m in modules if id(m) not in inner), *modules):
            if id(root) not in found[1]:
                _walk(root, *found)
        self._parameters, self._modules = found
        self._renamed = {number for number, place in found[1].items() if _module_at(place) is not place.module()}


def _walk(root: nn.Module, parameters: dict[int, Place], modules: dict[int, Place]) -> None:
    """Index the root and every module and parameter in it, each with a name that `th.hook` accepts."""
    at, kind = weakref.ref(root), type(original_module(root))
    for name, module in walk(root, skip=torch.jit.ScriptModule):
        if id(module) in modules:
            place = modules[id(module)]
            if place.root() is not root and place.other is None:
                modules[id(module)] = replace(place, other=kind)
            continue
        ref = weakref.ref(module)
        modules[id(module)] = Place(name, ref, at, kind)
        for key, parameter in list(private.own_parameters(module).items()):  # another thread may be adding parameters
            if parameter is not None:
                parameters.setdefault(id(parameter), Place(parameter_name(name, key), ref, at, kind, key))


def _module_at(place: Place) -> nn.Module | None:
    """Return the module that has the name of a place now, or None."""
    part = place.root()
    for name in place.name.split(".") if place.name != "." else ():
        part = private.child_modules(part).get(name) if part is not None else None
    return part


def names_of(root: nn.Module, part: nn.Module | Tensor) -> list[str]:
    """List every name that `th.hook` accepts for a module or parameter of a model."""
    found = list(walk(root, skip=torch.jit.ScriptModule))
    if isinstance(part, nn.Module):
        names = [name for name, module in found if module is part]
    else:
        owned = ((name, list(private.own_parameters(module).items())) for name, module in found)
        names = [parameter_name(name, key) for name, own in owned for key, one in own if one is part]
    return list(dict.fromkeys(names))


def is_of_a_trace(model: type) -> bool:
    """Return True for the class of a model that `torch.fx` made. It shares modules with another model."""
    return any(one.__name__ == "GraphModule" for one in model.__mro__)
