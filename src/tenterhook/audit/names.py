"""Name the modules and parameters of a model as it is now, without the code that resolves plans."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from tenterhook import torch_internals as private
from tenterhook.plan import ROOT, Hook


class Named:
    """The names of a module or of a parameter, and the class of the module."""

    __slots__ = ("names", "owner")

    def __init__(self, owner: type[nn.Module]) -> None:
        self.names: list[str] = []
        self.owner = owner

    def selected_by(self, hook: Hook) -> bool:
        """Return True if the selector of a hook matches one of the names."""
        typed = any("type:" in pattern for pattern in hook.selector.patterns)
        types = _classes(self.owner) if typed else ()
        return any(hook.selector.matches(name, types) for name in self.names)


def named_modules(model: nn.Module) -> dict[nn.Module, Named]:
    """Return the names of each module that can have hooks."""
    found: dict[nn.Module, Named] = {}
    for name, module in _walk(model, ROOT, ()):
        named = found.setdefault(module, Named(type(module)))
        if name not in named.names:
            named.names.append(name)
    return found


def named_parameters(model: nn.Module) -> dict[Tensor, Named]:
    """Return the names of each parameter."""
    found: dict[Tensor, Named] = {}
    for name, module in _walk(model, ROOT, ()):
        for key, parameter in private.own_parameters(module).items():
            if parameter is not None:
                named = found.setdefault(parameter, Named(type(module)))
                full = _parameter_name(name, key)
                if full not in named.names:
                    named.names.append(full)
    return found


def _walk(module: nn.Module, name: str, above: tuple[nn.Module, ...]) -> Iterator[tuple[str, nn.Module]]:
    """Yield every module under each of its names. A wrapper and the module in it have the same name."""
    if private.is_scripted(module) or any(module is one for one in above):
        return
    yield name, module
    parallel = isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel)
    for key, child in private.child_modules(module).items():
        if child is None:
            continue
        if key in private.TRANSPARENT or (parallel and key == "module"):
            below = name
        else:
            below = key if name == ROOT else f"{name}.{key}"
        yield from _walk(child, below, (*above, module))


def _parameter_name(module: str, key: str) -> str:
    """Return the name of a parameter. The original of a parametrized weight has the name of the weight."""
    parts = [] if module == ROOT else module.split(".")
    if len(parts) >= 2 and parts[-2] == "parametrizations" and key.startswith("original"):
        return ".".join([*parts[:-2], parts[-1], *([] if key == "original" else [key])])
    return ".".join([*parts, key])


def _classes(owner: type[nn.Module]) -> tuple[str, ...]:
    return tuple(f"{cls.__module__}.{cls.__qualname__}" for cls in owner.__mro__)
