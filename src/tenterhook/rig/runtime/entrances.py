"""Find the modules below the root that a pass can begin with, and watch the ends of a model."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence

from torch import nn
from torch.utils.hooks import RemovableHandle

from tenterhook import torch_internals as private
from tenterhook.resolve.dormancy import is_container


class Ends:
    """The first two and the last of the modules that a pass can begin with, with their handles.

    Args:
        watch: Function that registers a hook on a module.
    """

    def __init__(self, watch: Callable[[nn.Module], RemovableHandle]) -> None:
        self._watch = watch
        self.handles: weakref.WeakKeyDictionary[nn.Module, RemovableHandle] = weakref.WeakKeyDictionary()
        #: the first one, and the last one unless it is also the first one
        self.first: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self.last: weakref.WeakSet[nn.Module] = weakref.WeakSet()

    def move(self, modules: Sequence[nn.Module]) -> None:
        """Watch the ends of this list of modules, and no others."""
        ends = {*modules[:2], *modules[-1:]}  # if the first one is deleted, the second one begins the pass
        for module in set(self.handles) - ends:
            self.handles.pop(module).remove()
        for module in ends - set(self.handles):
            self.handles[module] = self._watch(module)
        self.first, self.last = weakref.WeakSet(modules[:1]), weakref.WeakSet(modules[-1:] if len(ends) > 1 else ())


def entrances(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules that a method of a module can call: its children, and those in its containers."""
    for child in private.child_modules(module).values():
        if child is not None:
            yield from entrances_of(child)


def entrances_of(module: nn.Module) -> Iterator[nn.Module]:
    """Yield a module and those of its containers that a method of its parent can call."""
    if not is_container(module) and not private.is_scripted(module):
        yield module
    if is_container(module) or isinstance(module, nn.Sequential):  # programs often go through the parts themselves
        yield from entrances(module)
