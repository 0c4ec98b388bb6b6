"""Find what a script trains: PyTorch says which optimizer steps, and the models are those that hold what it steps."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

#: what is done with a model and the optimizers that step it, in the order they step
Found = Callable[[nn.Module, list[Optimizer]], None]


class Discovery:
    """`found` is called from within an optimizer's step, before it: once for each model, when all optimizers that hold
    its parameters have begun to step, or the first steps again; and once more for each that comes later."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self._handle: Any = None
        #: optimizers that have stepped
        self._stepped: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        #: of each model, those that have, in order
        self._models: weakref.WeakKeyDictionary[nn.Module, list[weakref.ref[Optimizer]]] = weakref.WeakKeyDictionary()
        #: models of which an optimizer is still to come
        self._waiting: weakref.WeakSet[nn.Module] = weakref.WeakSet()

    def __enter__(self) -> Discovery:
        self._handle = register_optimizer_step_pre_hook(self._step)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._handle.remove()

    def _step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if optimizer not in self._stepped:
            self._first(optimizer)
            return
        for model in [m for m in self._waiting if optimizer in self._of(m)]:
            self._tell(model)

    def _first(self, optimizer: Optimizer) -> None:
        self._stepped.add(optimizer)
        modules, optimizers = _there()
        for model in roots(modules, optimizer):
            known = model in self._models
            mine = self._models.setdefault(model, [])
            mine.append(weakref.ref(optimizer))
            trained = _parameters(model)
            if known or _held_by(optimizers) & trained <= _held_by(self._of(model)):
                self._tell(model)
            else:
                self._waiting.add(model)

    def _of(self, model: nn.Module) -> list[Optimizer]:
        return [o for ref in self._models[model] if (o := ref()) is not None]

    def _tell(self, model: nn.Module) -> None:
        self._waiting.discard(model)
        self._found(model, list(_in_use(self._of(model), _parameters(model))))


def roots(modules: Iterable[nn.Module], optimizer: Optimizer) -> Iterator[nn.Module]:
    """The outermost modules that hold what it steps; of two around the same parameters, the smaller."""
    modules = list(modules)
    inner = {id(child) for module in modules for child in module.children()}
    missing = _held_by([optimizer])
    outer = [module for module in modules if id(module) not in inner]
    for model in sorted(outer, key=lambda m: sum(1 for _ in m.modules())):
        if missing & _parameters(model):
            missing -= _parameters(model)
            yield model


def _in_use(optimizers: list[Optimizer], trained: set[int]) -> Iterator[Optimizer]:
    """Without those whose parameters later ones have taken over."""
    for place, optimizer in enumerate(optimizers):
        mine = _held_by([optimizer]) & trained
        if mine and not mine <= _held_by(optimizers[place + 1 :]):
            yield optimizer


def _there() -> tuple[list[nn.Module], list[Optimizer]]:
    """Everything in the process. By type: asking an object for its class may run code of its own."""
    objects = gc.get_objects()
    modules = [o for o in objects if issubclass(type(o), nn.Module)]
    return modules, [o for o in objects if issubclass(type(o), Optimizer) and hasattr(o, "param_groups")]


def _parameters(model: nn.Module) -> set[int]:
    return {id(p) for p in model.parameters()}


def _held_by(optimizers: Iterable[Optimizer]) -> set[int]:
    return {id(p) for o in optimizers for group in o.param_groups for p in group["params"]}
