"""Write the layers and the setup of the model into the run folders, for viewers and for comparisons of runs."""

from __future__ import annotations

import json
from enum import Enum, auto

import torch
from torch import nn

from tenterhook import torch_internals as private
from tenterhook.plan import POINTS
from tenterhook.record import MODEL, Recorder
from tenterhook.resolve.targets import class_name, device_of, is_sharded, parameter_name, walk
from tenterhook.rig.installer import Installer
from tenterhook.rig.runtime.attached_hook import AttachedHook
from tenterhook.torch_internals.compiler import is_compiled


class _Order(Enum):
    """What is known about the order of the layers."""

    #: no file was written
    UNKNOWN = auto()
    #: the file has the order in which the layers were defined
    DEFINED = auto()
    #: the file has the order in which the layers ran
    RAN = auto()


class ModelWriter:
    """Writes the modules of a model in the order in which they are defined, and later in that in which they ran.

    The order in which modules run is known if a hook in the forward pass has fired. The file is then written again.
    """

    def __init__(self, installer: Installer, recorder: Recorder) -> None:
        self._installer = installer
        self._recorder = recorder
        self._order = _Order.UNKNOWN

    def begin(self) -> None:
        """Write the layers in the order in which they are defined, if there is a run folder."""
        if self._recorder.stores:
            self._write({})
            self._order = _Order.DEFINED

    def end_step(self) -> None:
        """Write the layers again, after the first step in which a hook in the forward pass fired."""
        if self._order is _Order.DEFINED and any(hook.sites and hook.sites[0].order >= 0 for hook in self._forward()):
            self._write(self._ran())
            self._order = _Order.RAN

    def close(self) -> None:
        """Write the layers as they are at the end, because the program may have added some."""
        if self._recorder.stores:
            self._write(self._ran())

    def _forward(self) -> list[AttachedHook]:
        return [one for one in self._installer.hooks.values() if POINTS[one.hook.at].side == "forward"]

    def _ran(self) -> dict[str, int]:
        """Return the place of each module in the last forward pass in which hooks fired."""
        sites = [site for hook in self._forward() for site in hook.sites if site.order >= 0]
        last = max((site.last for site in sites), default=-1)
        return {site.name: site.order for site in sites if site.last == last}

    def _write(self, ran: dict[str, int]) -> None:
        model = self._installer.environment.model.root()
        if model is None:
            return
        group = self._installer.environment.group

        def text() -> str:
            return model_json(model, ran, ranks=group.size)

        self._recorder.errors.contain("writing the layers", self._recorder.write_sidecar, MODEL, text)


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
    }
    layers = [modules[name] for name in in_order(list(modules), ran)]
    return json.dumps({"tenterhook": 1, "setup": setup, "layers": layers})


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
