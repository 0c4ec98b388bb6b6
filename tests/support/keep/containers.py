"""Save a run in different containers: torch.save, safetensors, a distributed checkpoint."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor

import tenterhook as th
from tests.support.keep.training import Run

#: key of the tensor that holds the structure of a flattened tree
SHAPE = "shape"


class Container(Protocol):
    """Open a saved run."""

    run: Mapping[str, Any]

    def __init__(self, path: Path) -> None: ...

    @staticmethod
    def save(run: Run, path: Path) -> None: ...

    def hooks(self) -> Mapping[str, Tensor]:
        """Return the state for `th.restore`."""
        ...

    def load(self, rig: th.Rig) -> None:
        """Load the state into an attached rig."""
        ...


class TorchSave:
    def __init__(self, path: Path) -> None:
        found = torch.load(path, weights_only=True)
        self.run, self._hooks = found["run"], found["hooks"]

    @staticmethod
    def save(run: Run, path: Path) -> None:
        torch.save({"run": run.state_dict(), "hooks": run.rig.state_dict()}, path)

    def hooks(self) -> Mapping[str, Tensor]:
        return self._hooks

    def load(self, rig: th.Rig) -> None:
        assert not rig.load_state_dict(self._hooks)


class Safetensors:
    """Store the entries of the hooks and of the run in one flat file."""

    def __init__(self, path: Path) -> None:
        self._all = safetensors.torch.load_file(path)
        self.run = tree(self._all)

    @staticmethod
    def save(run: Run, path: Path) -> None:
        safetensors.torch.save_file({**flat(run.state_dict()), **run.rig.state_dict()}, path)

    def hooks(self) -> Mapping[str, Tensor]:
        return self._all

    def load(self, rig: th.Rig) -> None:
        assert not rig.load_state_dict(self._all)


class Distributed:
    """Save the rig itself, as a Stateful, and read it with DcpState. The rest of the run is one tensor, for speed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        rest = torch.empty(
            dcp.FileSystemReader(path).read_metadata().state_dict_metadata["run"].size, dtype=torch.uint8
        )
        self._read(run=rest)
        self.run = tree(safetensors.torch.load(rest.numpy().tobytes()))

    @staticmethod
    def save(run: Run, path: Path) -> None:
        rest = torch.frombuffer(bytearray(safetensors.torch.save(flat(run.state_dict()))), dtype=torch.uint8)
        with _single_process():
            dcp.save({"run": rest, "hooks": run.rig}, checkpoint_id=path)

    def hooks(self) -> Mapping[str, Tensor]:
        places = th.DcpState(self._path)
        self._read(hooks=places)
        return places.state_dict()

    def load(self, rig: th.Rig) -> None:
        self._read(hooks=th.DcpState(self._path, rig))

    def _read(self, **wanted: Any) -> None:
        with _single_process():
            dcp.load(wanted, checkpoint_id=self._path)


@contextmanager
def _single_process() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        yield


CONTAINERS: dict[str, type[Container]] = {"torch": TorchSave, "safetensors": Safetensors, "dcp": Distributed}
#: restore the saved plan on a bare model, or load the saved state into a rig that has the program's plan
WAYS = ("restore", "load")


def resume(path: Path, container: str, way: str, *, without: str = "", **options: Any) -> Run:
    """Return a new run, made with other weights and seeds, that continues from the saved state.

    `without` names a component that is not restored, to test that its absence is detected.
    """
    saved = CONTAINERS[container](path)
    run = Run(seed=1)
    run.load_state_dict({name: part for name, part in saved.run.items() if name != without})
    if way == "restore":
        run.restore(saved.hooks(), **options)
    else:
        saved.load(run.attach())
    if without != "rng":
        torch.set_rng_state(saved.run["rng"])  # last, because the code above may draw random numbers
    return run


# -- trees of state as flat tensors ------------------------------------------------------------------------------------


def flat(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of a tree by number, and the tree without them as JSON bytes."""
    tensors: list[Tensor] = []
    shape = json.dumps(_shape(state, tensors)).encode()
    return {str(i): t for i, t in enumerate(tensors)} | {SHAPE: torch.frombuffer(bytearray(shape), dtype=torch.uint8)}


def tree(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Rebuild the tree that was passed to `flat`."""
    return _filled(json.loads(bytes(tensors[SHAPE].tolist())), tensors)


def _shape(value: Any, tensors: list[Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if isinstance(value, Mapping):
        return {"dict": [[key, _shape(v, tensors)] for key, v in value.items()]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_shape(v, tensors) for v in value]}
    return value


def _filled(shape: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(shape, dict):
        return shape
    ((kind, inner),) = shape.items()
    if kind == "tensor":
        return tensors[str(inner)]
    if kind == "dict":
        return {key: _filled(v, tensors) for key, v in inner}
    return {"list": list, "tuple": tuple}[kind](_filled(v, tensors) for v in inner)
