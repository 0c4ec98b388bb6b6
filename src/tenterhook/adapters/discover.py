"""Find the optimizers that a script uses, and the models that they train."""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from tenterhook import torch_internals as private

_SLOT = "_forward_pre_hooks"
#: what is about to begin when a model is reported
Moment = Literal["forward", "step"]
#: called with a model, its optimizers sorted by their first steps, and what is about to begin
OnModel = Callable[[nn.Module, list[Optimizer], Moment], None]


class Discovery:
    """A context manager that calls `on_model` for each trained model, at the beginning of an optimizer step.

    The first call for a model happens when all optimizers that hold its parameters have started their first step, or
    when one of them starts its second step, whichever is earlier. After that, each optimizer that starts its first step
    triggers another call.

    Args:
        on_model: The function.
        at_first_forward: If True, the first call for a model happens before its first forward pass in training mode,
            when a first optimizer exists, so that hooks can also see this pass.
    """

    def __init__(self, on_model: OnModel, *, at_first_forward: bool = False) -> None:
        self._on_model = on_model
        self._at_first_forward = at_first_forward
        self._handles: list[RemovableHandle] = []
        #: optimizers that have stepped
        self._stepped: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        #: for each model, its optimizers that have stepped, in the order of their first steps
        self._models: weakref.WeakKeyDictionary[nn.Module, list[weakref.ref[Optimizer]]] = weakref.WeakKeyDictionary()
        #: models with an optimizer that has not stepped yet
        self._waiting: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        #: optimizers whose parameters no module holds, and that never had a gradient; their names and steps
        self._orphans: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self.idle: Counter[str] = Counter()
        #: for each optimizer that stepped, why its model was not reported
        self.unreported: dict[str, str] = {}

    def __enter__(self) -> Discovery:
        self._handles.append(register_optimizer_step_pre_hook(self._step))
        if self._at_first_forward:
            self._handles.append(register_module_forward_pre_hook(self._forward))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for handle in self._handles:
            handle.remove()

    def _forward(self, module: nn.Module, args: Any) -> Any:
        """Report the model whose forward pass begins, if an optimizer holds its parameters."""
        if not (module.training and torch.is_grad_enabled()):
            return None
        modules, optimizers = _modules_and_optimizers()
        mine = [one for one in optimizers if module in roots(modules, one)]
        if mine and module not in self._models:
            self._models[module] = [weakref.ref(one) for one in mine]
            self._stepped.update(mine)
            self._handles.pop().remove()
            there = set(private.hooks_in(module, _SLOT))
            self._on_model(module, mine, "forward")
            return _call_new_hooks(module, there, args, private.call_kwargs(sys._getframe(1)))
        return None

    def _step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        first = optimizer not in self._stepped
        if first:
            self._first_step(optimizer)
        if optimizer in self._orphans:
            self._count_idle(optimizer)
        if first:
            return
        for model in [m for m in self._waiting if optimizer in self._stepping(m)]:
            self._report(model)

    def _first_step(self, optimizer: Optimizer) -> None:
        self._stepped.add(optimizer)
        modules, optimizers = _modules_and_optimizers()
        models = list(roots(modules, optimizer))
        name = type(optimizer).__name__
        if not models:
            self.unreported[name] = "no nn.Module holds the parameters of this optimizer"
            self._orphans.add(optimizer)
        for model in models:
            known = model in self._models
            mine = self._models.setdefault(model, [])
            mine.append(weakref.ref(optimizer))
            trained = _parameters(model)
            if known or _held_by(optimizers) & trained <= _held_by(self._stepping(model)):
                self._report(model)
            else:
                self._waiting.add(model)
                self.unreported[name] = (
                    f"it took only one step, and {type(model).__name__} has another optimizer, which took none"
                )

    def _count_idle(self, optimizer: Optimizer) -> None:
        """Count a step in which none of an optimizer's parameters has a gradient."""
        name = type(optimizer).__name__
        if any(p.grad is not None for group in optimizer.param_groups for p in group["params"]):
            self._orphans.discard(optimizer)
            del self.idle[name]
        else:
            self.idle[name] += 1

    def _stepping(self, model: nn.Module) -> list[Optimizer]:
        """Return a model's optimizers that have stepped, in the order of their first steps."""
        return [o for ref in self._models[model] if (o := ref()) is not None]

    def _report(self, model: nn.Module) -> None:
        self._waiting.discard(model)
        self._on_model(model, list(_in_use(self._stepping(model), _parameters(model))), "step")


def roots(modules: Iterable[nn.Module], optimizer: Optimizer) -> Iterator[nn.Module]:
    """Yield the outermost modules that hold the parameters of an optimizer.

    If two modules hold the same parameters, yield the module with fewer submodules.
    """
    modules = list(modules)
    inner = {id(child) for module in modules for child in module.children()}
    missing = _held_by([optimizer])
    outer = [module for module in modules if id(module) not in inner]
    for model in sorted(outer, key=lambda m: sum(1 for _ in m.modules())):
        if missing & _parameters(model):
            missing -= _parameters(model)
            yield model


def _call_new_hooks(module: nn.Module, there: set[int], args: Any, kwargs: dict[str, Any]) -> Any:
    """Call the hooks that are new on a module. PyTorch has listed the hooks of this call before."""
    for key, fn in list(private.hooks_in(module, _SLOT).items()):
        if key in there:
            continue
        if not private.gets_kwargs(module, _SLOT, key):
            new = fn(module, args)
            args = args if new is None else new if isinstance(new, tuple) else (new,)
        elif (both := fn(module, args, kwargs)) is not None:
            args, changed = both
            kwargs.update(changed)  # PyTorch passes this dict to the model
    return args


def _in_use(optimizers: list[Optimizer], trained: set[int]) -> Iterator[Optimizer]:
    """Yield each optimizer with at least one parameter that no later optimizer holds."""
    for place, optimizer in enumerate(optimizers):
        mine = _held_by([optimizer]) & trained
        if mine and not mine <= _held_by(optimizers[place + 1 :]):
            yield optimizer


def _modules_and_optimizers() -> tuple[list[nn.Module], list[Optimizer]]:
    """Find all modules and optimizers in the process.

    The check uses `type(o)`, because `isinstance` may run the object's own code.
    """
    objects = gc.get_objects()
    modules = [o for o in objects if issubclass(type(o), nn.Module)]
    return modules, [o for o in objects if issubclass(type(o), Optimizer) and hasattr(o, "param_groups")]


def _parameters(model: nn.Module) -> set[int]:
    return {id(p) for p in model.parameters()}


def _held_by(optimizers: Iterable[Optimizer]) -> set[int]:
    return {id(p) for o in optimizers for group in o.param_groups for p in group["params"]}
