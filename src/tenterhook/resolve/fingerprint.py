"""Notice changes of a model's structure: children, parameters, ties, and which parameters are trained.

A fingerprint is compared where signals occur, twice in every step. So it reads only identities, and most of its loops
run in C. The address of an object is used again when the object is freed. So modules are held by weak references that
notice this, and parameters are held until the next comparison: `swap_tensors` refuses a tensor with a weak reference.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from itertools import chain
from typing import Any

from torch import Tensor, nn

from tenterhook import torch_internals as private

#: how often a comparison looks at every module
FULLY = 64


class Change(IntEnum):
    """A change of a model since its fingerprint was taken. Each change includes the ones before it."""

    NOTHING = 0
    #: a parameter was frozen or unfrozen
    TRAINED = 1
    #: `swap_tensors` has given a parameter the contents of another tensor, which loses its hooks
    SWAPPED = 2
    #: a module has another parameter or another child, or the same one under another name
    STRUCTURE = 3


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
        self._tensors = tensors
        self._compared = 0
        self._modules, self._parents = list(map(weakref.ref, modules)), list(map(weakref.ref, parents))
        # Modules keep these dicts. To look at the dicts is much faster than to look at the modules.
        self._no_children, self._parameter_dicts = _lasting_dicts(modules)
        self._empty = [one for one in self._parameter_dicts if not one] + self._no_children
        filled = [one for one in self._parameter_dicts if one]
        self._keys, children = _entries(private.children_of(parents))
        self._children = _Modules(children)
        self._names, parameters = _entries(filled)
        self._ids = list(map(id, parameters))
        self._values = [one.values() for one in filled]
        self._held = _tensors(parameters)
        self._trained, self._contents = _are_trained(self._held), private.implementations(self._held)
        #: releases the parameters when the model is freed
        self._root = weakref.ref(model, partial(_clear, self._held, self._values, self._parameter_dicts))

    def compare(self) -> Change:
        """Return what has changed since the fingerprint was taken or last compared."""
        change = self._compare_tensors() if self._has_same_children() else Change.STRUCTURE
        return change or self._compare_trained()

    def compare_quickly(self) -> Change:
        """Do the same as `compare`, but take a replaced or swapped parameter for the one that was there."""
        return self._compare_trained() if self._has_same_children() else Change.STRUCTURE

    def _has_same_children(self) -> bool:
        if self._compared % FULLY == 0 and not self._has_same_dicts():
            return False
        self._compared += 1
        parents = [ref() for ref in self._parents]
        if None in parents or any(self._empty):
            return False
        keys, children = _entries(private.children_of(parents))  # type: ignore[arg-type]
        return keys == self._keys and self._children.match(children)

    def _has_same_dicts(self) -> bool:
        """Look at every module. Programs that write to the dicts of a module, or exchange them, are rare."""
        modules = [module for ref in self._modules if (module := ref()) is not None]
        if len(modules) < len(self._modules):
            return False
        no_children, parameters = _lasting_dicts(modules)
        if not same(no_children, self._no_children) or not same(parameters, self._parameter_dicts):
            return False
        return list(chain.from_iterable(parameters)) == self._names

    def _compare_tensors(self) -> Change:
        held = self._held
        if list(map(id, chain.from_iterable(self._values))) != self._ids:
            held = _tensors(chain.from_iterable(self._values))
            if self._tensors and not _is_functional(held):
                return Change.STRUCTURE
        before, self._contents = self._contents, private.implementations(held)
        return Change.SWAPPED if self._contents != before else Change.NOTHING

    def _compare_trained(self) -> Change:
        before, self._trained = self._trained, _are_trained(self._held)
        return Change.TRAINED if self._trained != before else Change.NOTHING


def _lasting_dicts(modules: Sequence[nn.Module]) -> tuple[list[Any], list[Any]]:
    """Return the dicts of children that are empty, and all dicts of parameters. Modules do not exchange these."""
    return [one for one in private.children_of(modules) if not one], list(private.parameters_of(modules))


def _clear(*lists: Any) -> None:
    for one in lists[:-1]:  # the last argument is the reference to the model
        one.clear()


def _entries(dicts: Iterable[Mapping[str, object]]) -> tuple[list[str], list[object]]:
    """Return the keys and the values of several dicts."""
    found = list(dicts)
    return list(chain.from_iterable(found)), list(chain.from_iterable([one.values() for one in found]))


def _tensors(parameters: Iterable[Any]) -> list[Tensor]:
    return [one for one in parameters if one is not None]


def _are_trained(tensors: list[Tensor]) -> list[bool]:
    return [tensor.requires_grad for tensor in tensors]


def _is_functional(parameters: Iterable[object]) -> bool:
    """Return True during `functional_call`, which replaces the parameters with other tensors for one forward pass."""
    return any(not isinstance(one, nn.Parameter) for one in parameters)
