"""Notice changes of a model's structure: children, parameters, ties, and which parameters are trained.

A fingerprint is compared where signals occur, in every step. So it reads only identities, and most of its loops run in
C. The address of an object is used again when the object is freed. So modules are held by weak references that notice
this, and parameters are held until the next comparison: `swap_tensors` refuses a tensor with a weak reference.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from itertools import chain

from torch import Tensor, nn

from tenterhook import torch_internals as private


class Change(IntEnum):
    """A change of a model since its fingerprint was taken. Each change includes the ones before it."""

    NOTHING = 0
    #: a parameter was frozen or unfrozen
    TRAINED = 1
    #: a module has another parameter or another child, or the same one under another name
    STRUCTURE = 2


class _Modules:
    """The identities of a list of modules. The modules are not kept alive."""

    def __init__(self, modules: Sequence[object]) -> None:
        #: receives the references to modules that were freed
        self._freed: list[weakref.ref[object]] = []
        self._refs = [weakref.ref(one, self._freed.append) for one in modules if one is not None]
        self._ids = list(map(id, modules))

    def match(self, modules: Iterable[object]) -> bool:
        """Return True if these are the same modules in the same order."""
        return not self._freed and list(map(id, modules)) == self._ids


def same(one: Sequence[object], other: Sequence[object]) -> bool:
    """Return True if two sequences contain the same objects in the same order."""
    return list(map(id, one)) == list(map(id, other))


class Fingerprint:
    """A record of the structure of a model at one moment.

    Args:
        model: The model.
        tensors: If False, a replaced parameter is not a change, because FSDP2 replaces parameters all the time.
    """

    def __init__(self, model: nn.Module, *, tensors: bool = True) -> None:
        modules = [module for module in model.modules() if not private.is_scripted(module)]  # their parts are fixed
        parents = [module for module in modules if private.child_modules(module)]
        owners = [module for module in modules if private.own_parameters(module)]
        self._tensors = tensors
        self._parents, self._owners = list(map(weakref.ref, parents)), list(map(weakref.ref, owners))
        self._childless = [weakref.ref(module) for module in modules if not private.child_modules(module)]
        self._without = [weakref.ref(module) for module in modules if not private.own_parameters(module)]
        self._keys, children = _entries(private.children_of(parents))
        self._children = _Modules(children)
        self._names, self._parameters = _entries(private.parameters_of(owners))
        self._trained = _trained(self._parameters)
        #: releases the parameters when the model is freed
        self._root = weakref.ref(model, partial(_clear, self._parameters))

    def compare(self) -> Change:
        """Return what has changed since the fingerprint was taken or last compared."""
        parents, owners = [ref() for ref in self._parents], [ref() for ref in self._owners]
        if None in parents or None in owners:
            return Change.STRUCTURE
        keys, children = _entries(private.children_of(parents))  # type: ignore[arg-type]
        names, parameters = _entries(private.parameters_of(owners))  # type: ignore[arg-type]
        if keys != self._keys or names != self._names or not self._children.match(children):
            return Change.STRUCTURE
        if any(private.children_of(_alive(self._childless))) or any(private.parameters_of(_alive(self._without))):
            return Change.STRUCTURE
        if self._tensors and not same(parameters, self._parameters) and not _is_functional(parameters):
            return Change.STRUCTURE
        trained = _trained(parameters)
        if trained != self._trained:
            self._trained = trained
            return Change.TRAINED
        return Change.NOTHING


def _clear(parameters: list[object], _: object) -> None:
    parameters.clear()


def _entries(dicts: Iterable[Mapping[str, object]]) -> tuple[list[str], list[object]]:
    """Return the keys and the values of several dicts."""
    found = list(dicts)
    return list(chain.from_iterable(found)), list(chain.from_iterable([one.values() for one in found]))


def _alive(refs: list[weakref.ref[nn.Module]]) -> list[nn.Module]:
    return [module for ref in refs if (module := ref()) is not None]


def _trained(parameters: Iterable[object]) -> list[bool]:
    return [one.requires_grad for one in parameters if isinstance(one, Tensor)]


def _is_functional(parameters: Iterable[object]) -> bool:
    """Return True during `functional_call`, which replaces the parameters with other tensors for one forward pass."""
    return any(isinstance(one, Tensor) and not isinstance(one, nn.Parameter) for one in parameters)
