"""Find the targets in a model, and give them canonical names that do not depend on wrappers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tenterhook import torch_internals as private
from tenterhook.errors import ResolveError
from tenterhook.plan import ROOT, Kind
from tenterhook.torch_internals import compiler as dynamo

Optimizers = Optimizer | Sequence[Optimizer] | Mapping[str, Optimizer] | None


class Target(NamedTuple):
    """A reference to a parameter, module or optimizer that does not keep it alive.

    A model may have very many targets, so this class is a tuple, which is cheap to create.
    """

    name: str
    kind: Kind
    #: returns the module, the module that owns the parameter, or the optimizer; None if it no longer exists
    owner: Callable[[], nn.Module | Optimizer | None]
    #: key of the parameter in its owner
    key: str = ""
    #: other names of the same object
    aliases: tuple[str, ...] = ()

    def parameter(self) -> Tensor | None:
        """Return the tensor that the owner currently has under this key."""
        owner: Any = self.owner()
        return None if owner is None else private.own_parameters(owner).get(self.key)


@dataclass(frozen=True, slots=True)
class ModelTargets:
    """All targets that a model has. A tied parameter or a shared module is a single target with aliases."""

    modules: dict[str, Target]
    parameters: dict[str, Target]
    optimizers: dict[str, Target]
    #: names of the modules on which torch.compile was called
    compiled: tuple[str, ...]
    #: True if at least one parameter is a DTensor
    sharded: bool

    def in_graph(self, target: Target) -> bool:
        """Return True if compiled code calls the module. The compiled module itself is called by uncompiled code."""
        return target.kind == "module" and bool(self.compiled_around(target))

    def compiled_around(self, target: Target) -> list[str]:
        around = [name for name in self.compiled if name == ROOT or target.name.startswith(f"{name}.")]
        return [name for name in around if name != target.name]

    def of_kinds(self, kinds: Sequence[Kind]) -> dict[str, Target]:
        tables = {"module": self.modules, "parameter": self.parameters, "optimizer": self.optimizers, "tap": {}}
        found: dict[str, Target] = {}
        for kind in kinds:
            found.update(tables[kind])
        return found


def targets_of(model: nn.Module, optimizers: Mapping[str, Optimizer]) -> ModelTargets:
    modules: dict[int, tuple[str, nn.Module, list[str]]] = {}
    parameters: dict[int, tuple[str, nn.Module, str, list[str]]] = {}
    compiled: list[str] = []
    sharded = False
    for name, module in walk(model):
        if dynamo.is_compiled(module):
            compiled.append(name)
        known = modules.get(id(module))
        if known is not None:
            known[2].append(name)
        else:
            modules[id(module)] = (name, module, [])
        for key, parameter in private.own_parameters(module).items():
            if parameter is None:
                continue
            sharded = sharded or is_sharded(parameter)
            full = parameter_name(name, key)
            if id(parameter) in parameters:
                if full != parameters[id(parameter)][0]:
                    parameters[id(parameter)][3].append(full)
            else:
                parameters[id(parameter)] = (full, module, key, [])
    found = ModelTargets({}, {}, {}, tuple(compiled), sharded)
    for name, module, aliases in modules.values():
        # A wrapper and the module inside it share a name. The walk yields the inner module last, so the inner
        # module replaces the wrapper.
        also = tuple(a for a in aliases if a != name) if aliases else ()
        found.modules[name] = Target(name, "module", weakref.ref(module), "", also)
    for name, owner, key, others in parameters.values():
        also = tuple(others) if others else ()
        found.parameters[name] = Target(name, "parameter", weakref.ref(owner), key, also)
    for name, optimizer in optimizers.items():
        found.optimizers[name] = Target(name, "optimizer", weakref.ref(optimizer))
    return found


def walk(model: nn.Module, *, skip: type[nn.Module] | None = None) -> Iterator[tuple[str, nn.Module]]:
    """Yield every module under each of its names: parents before children, wrappers before wrapped modules.

    Modules of the class `skip` and their children are left out.
    """
    pending: list[tuple[str, nn.Module]] = [(ROOT, model)]
    seen: dict[int, list[str]] = {}
    while pending:
        name, module = pending.pop()
        known = seen.setdefault(id(module), [])
        if known and any(name == k or k == ROOT or name.startswith(k + ".") for k in known):
            continue  # a second wrapper with the same name, or a module that contains itself
        known.append(name)
        yield name, module
        below = []
        for key, child in list(private.child_modules(module).items()):  # another thread may be changing the dict
            if child is None or (skip is not None and isinstance(child, skip)):
                continue
            if key in private.TRANSPARENT or (key == "module" and is_parallel(module)):
                below.append((name, child))
            else:
                below.append((key if name == ROOT else f"{name}.{key}", child))
        pending.extend(reversed(below))


def wrappers(model: nn.Module) -> list[nn.Module]:
    """Return the wrappers around a module, such as DDP or what torch.compile made, and at the end the module itself."""
    return [module for _, module in takewhile(lambda found: found[0] == ROOT, walk(model))]


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the module without its wrappers."""
    return wrappers(model)[-1]


def is_parallel(module: nn.Module) -> bool:
    """Return True for a wrapper that trains replicas of a model."""
    return isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel)


def parameter_name(module: str, key: str) -> str:
    """Return the canonical name of a parameter.

    The parameter `original` of `layer.parametrizations.weight` is named `layer.weight`.
    """
    if module == ROOT:
        return key
    before, found, after = f".{module}".rpartition(".parametrizations.")
    if found and "." not in after and key.startswith("original"):
        tail = after if key == "original" else f"{after}.{key}"
        return f"{before[1:]}.{tail}" if before else tail
    return f"{module}.{key}"


def named_parameters(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Return each parameter of a model once, with its canonical name, in the order of the modules."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, module in walk(model):
        for key, parameter in module.named_parameters(recurse=False):
            found.setdefault(id(parameter), (parameter_name(name, key), parameter))
    return list(found.values())


def is_sharded(tensor: Tensor | None) -> bool:
    kind = type(tensor)
    found = _sharded.get(kind)
    if found is None:
        from torch.distributed.tensor import DTensor

        found = _sharded[kind] = issubclass(kind, DTensor)
    return found


#: by type, whether its tensors are sharded; most types are asked for many times in each step
_sharded: dict[type, bool] = {type(None): False, Tensor: False, nn.Parameter: False}


def type_names(module: nn.Module) -> tuple[str, ...]:
    return _type_names(type(module))


def _type_names(cls: type, _known: dict[type, tuple[str, ...]] = {}) -> tuple[str, ...]:  # noqa: B006 - a cache
    if cls not in _known:
        _known[cls] = tuple(f"{c.__module__}.{c.__qualname__}" for c in cls.__mro__)
    return _known[cls]


def named_optimizers(optimizers: Optimizers) -> dict[str, Optimizer]:
    """Name the optimizers.

    A single optimizer is named `optimizer`. Optimizers in a list are named `optimizer.0`, `optimizer.1` and so on.
    Optimizers in a dict are named `optimizer.<key>`.
    """
    if optimizers is None:
        return {}
    if isinstance(optimizers, Mapping):
        named = {f"optimizer.{key}": o for key, o in optimizers.items()}
    elif isinstance(optimizers, Sequence):
        named = {f"optimizer.{i}": o for i, o in enumerate(optimizers)}
    else:
        named = {"optimizer": optimizers}
    return {name: _unwrapped_optimizer(one) for name, one in named.items()}


def _unwrapped_optimizer(given: object) -> Optimizer:
    """Return the optimizer that steps. Accelerate and other libraries wrap it in an object that has no hooks itself."""
    found: Any = given
    while isinstance(getattr(found, "optimizer", None), Optimizer) and not private.has_step_hooks(found):
        found = found.optimizer
    if isinstance(given, type):
        raise ResolveError(
            f"optimizer= received the class {given.__name__}, not an optimizer",
            remedy=f"create it, and pass the object that you step: {given.__name__}(model.parameters(), lr=0.1)",
        )
    if not isinstance(found, Optimizer) or not private.has_step_hooks(found):
        raise ResolveError(
            f"optimizer= received an object of type {type(given).__name__}",
            remedy="pass an Optimizer, or a list or dict of optimizers",
        )
    return found


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the first parameter, or the CPU if there are no parameters."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def devices_of(model: nn.Module) -> set[str]:
    return {"cpu", *(str(p.device) for p in model.parameters())}


def kinds_of(targets: Sequence[Target]) -> list[str | None]:
    """Describe each target: a parameter in the form `float32[4, 8]`, and a module by its class."""
    known: dict[tuple[torch.dtype, torch.Size], str] = {}
    kinds: list[str | None] = []
    for target in targets:
        if target.kind == "parameter":
            parameter = target.parameter()
            if parameter is None:
                kinds.append(None)
                continue
            key = (parameter.dtype, parameter.shape)
            kind = known.get(key)
            if kind is None:
                kind = known[key] = kind_of(parameter)
            kinds.append(kind)
        else:
            owner = target.owner() if target.kind == "module" else None
            kinds.append(None if owner is None else class_name(type(owner)))
    return kinds


def class_name(cls: type) -> str:
    """Return the name of the class that the program defines, not of the subclass that FSDP2 creates."""
    own, *above = cls.__mro__
    return above[1].__name__ if above[0].__name__ == "FSDPModule" else own.__name__


def kind_of(tensor: Tensor) -> str:
    """Describe a tensor in the form `float32[4, 8]`."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
