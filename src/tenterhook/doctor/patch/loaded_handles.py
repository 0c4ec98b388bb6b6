"""Find pickled handles that were loaded, and whose hooks belong to no module."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

from torch import nn

from tenterhook import torch_internals as private
from tenterhook.doctor.observe.model_index import caller
from tenterhook.doctor.observe.observer import Observer

#: the ends of the names of the files that load pickled objects
_LOADERS = ("torch/serialization.py", "/pickle.py", "_weights_only_unpickler.py")


class LoadedHandle(NamedTuple):
    """A pickled handle that was loaded."""

    #: the place in the code that loaded it
    place: str
    #: returns the hook dict to which it refers, as long as the dict exists
    hooks: Callable[[], Any]


class LoadedHandles:
    """Collects the handles that were loaded without their modules."""

    def __init__(self) -> None:
        self._handles: list[LoadedHandle] = []

    @property
    def places(self) -> list[str]:
        """List the places in the code that loaded such handles."""
        return list(dict.fromkeys(one.place for one in self._handles))

    def loading(self, handle: Any, state: Any) -> Observer:
        """Observe the loading of a handle."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not frame.f_code.co_filename.endswith(_LOADERS):
            frame = frame.f_back
        yield
        if frame is not None:
            self._handles.append(LoadedHandle(caller().place, handle.hooks_dict_ref))

    def loading_module(self, module: nn.Module, state: Any) -> Observer:
        """Observe the loading of a module. A handle that refers to one of its hook dicts can remove its hook."""
        yield
        own = [id(private.hooks_in(module, slot)) for slot in private.MODULE_SLOTS]
        self._handles = [one for one in self._handles if id(one.hooks()) not in own]
