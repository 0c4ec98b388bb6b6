"""Describe the layers and the setup of a model as JSON, for viewers and for comparisons of runs."""

from __future__ import annotations

import json

import torch
from torch import nn

from tenterhook import torch_internals as private
from tenterhook.resolve.targets import class_name, device_of, is_sharded, parameter_name, walk
from tenterhook.torch_internals.compiler import is_compiled


def model_json(model: nn.Module, ran: dict[str, int], *, ranks: int) -> str:
    """Return the modules of a model as JSON, with the name, class and own parameters of each, and the setup.

    Args:
        model: The model.
        ran: The place of some modules in a forward pass. Modules without a place follow the module before them.
        ranks: The number of ranks that train the model.
    """
    modules: dict[str, list[object]] = {}
    for name, module in walk(model):
        # The walk yields a wrapper before the module inside it, which has the same name.
        own = [parameter_name(name, key) for key, one in private.own_parameters(module).items() if one is not None]
        modules[name] = [name, class_name(type(module)), own]
    parameters = list(model.parameters())
    setup = {
        "torch": torch.__version__,
        "device": device_of(model).type,
        "ranks": ranks,
        "sharded": any(map(is_sharded, parameters)),
        "compiled": any(is_compiled(module) for module in model.modules()),
        "dtype": str(min((p.dtype for p in parameters), key=lambda d: d.itemsize, default=None)).removeprefix("torch."),
        "rounding": _rounding(parameters, device_of(model)),
    }
    layers = [modules[name] for name in in_order(list(modules), ran)]
    return json.dumps({"tenterhook": 1, "setup": setup, "layers": layers})


def _rounding(parameters: list[nn.Parameter], device: torch.device) -> str:
    """Return the machine and the memory format, which decide in which order kernels sum."""
    if device.type == "cpu":
        words = [torch.backends.cpu.get_cpu_capability(), f"{torch.get_num_threads()} threads"]
    else:
        name = getattr(torch.get_device_module(device), "get_device_name", None)
        words = [name(device) if name is not None else ""]
    images = [p for p in parameters if p.dim() == 4 and not is_sharded(p)]
    if any(p.is_contiguous(memory_format=torch.channels_last) and not p.is_contiguous() for p in images):
        words.append("channels last")
    return ", ".join(words)


def in_order(names: list[str], ran: dict[str, int]) -> list[str]:
    """Sort modules by the place at which the first module inside them ran. Modules of one block stay together.

    Args:
        names: The modules, parents before children, as defined.
        ran: The place of some modules in a forward pass.
    """
    if not ran:
        return names
    first: dict[str, int] = {}
    for name, place in ran.items():
        for above in _with_parents(name):
            first[above] = min(place, first.get(above, place))
    keys: dict[str, tuple[tuple[int, int], ...]] = {}
    latest: dict[str, int] = {}
    for number, name in enumerate(names):
        parent = name.rpartition(".")[0] or "."
        latest[parent] = first.get(name, latest.get(parent, -1))
        keys[name] = () if name == "." else (*keys.get(parent, ()), (latest[parent], number))
    return sorted(names, key=keys.__getitem__)


def _with_parents(name: str) -> list[str]:
    """Return a module's name and the names of the modules around it."""
    parts = name.split(".")
    return [".", *(".".join(parts[:length]) for length in range(1, len(parts) + 1))] if name != "." else ["."]
