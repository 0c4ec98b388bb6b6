"""List the readers of untrusted data, and the ways by which data reaches them."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.metadata import Metadata

import tenterhook as th
from tests.support.keep.specimen import specimen


class Victim:
    """Hold a model without hooks and a model with a rig. A refusal must change neither."""

    def __init__(self) -> None:
        # The rig is ahead of every state that is loaded into it, so that a partly loaded state shows.
        self._bare, self._rigged = specimen(), specimen(steps=5)
        self._bare.rig.detach()
        self._before = self._everything()

    # -- readers -----------------------------------------------------------------------------------------------------

    def from_json(self, text: bytes) -> None:
        self._attach(th.Plan.from_json(text))

    def from_toml(self, text: bytes) -> None:
        self._attach(th.Plan.from_toml(text))

    def load_plan(self, path: Path) -> None:
        self._attach(th.Plan.load(path))

    def _attach(self, plan: th.Plan) -> None:
        th.attach(self._bare.model, plan, optimizer=self._bare.optimizer)

    def restore(self, state: Any) -> None:
        th.restore(self._bare.model, state, optimizer=self._bare.optimizer)

    def load_state(self, state: Any) -> None:
        self._rigged.rig.load_state_dict(state)

    # -- traces ------------------------------------------------------------------------------------------------------

    def _everything(self) -> dict[str, Tensor]:
        models = (self._bare.model, self._rigged.model)
        weights = {f"{i}.{k}": v.clone() for i, model in enumerate(models) for k, v in model.state_dict().items()}
        return {**self._rigged.rig.state_dict(), **weights}

    def changes(self) -> list[str]:
        said = []
        if th.inventory(self._bare.model, optimizer=self._bare.optimizer):
            said.append("a refusal left hooks")
        now = self._everything()
        if now.keys() != self._before.keys() or not all(torch.equal(v, self._before[k]) for k, v in now.items()):
            said.append("a refusal changed the rig or a model")
        return said

    def leave(self) -> None:
        th.detach(self._bare.model)


READERS: dict[str, Callable[[Victim, Any], None]] = {
    "Plan.from_json": Victim.from_json,
    "Plan.from_toml": Victim.from_toml,
    "Plan.load": Victim.load_plan,
    "restore": Victim.restore,
    "load_state_dict": Victim.load_state,
    "DcpState": lambda _, reader: th.DcpState(reader) and None,
}

# -- carriers ----------------------------------------------------------------------------------------------------------

#: a way by which data reaches a reader: it yields each call of tenterhook, to be watched, and receives its result
Way = Generator[Callable[[], Any], Any, Any]


def by_memory(thing: Any, place: Path) -> Way:
    yield from ()
    return thing


def by_json_file(text: bytes, place: Path) -> Way:
    yield from ()
    (place / "plan.json").write_bytes(text)
    return place / "plan.json"


def by_toml_file(text: bytes, place: Path) -> Way:
    yield from ()
    (place / "plan.toml").write_bytes(text)
    return place / "plan.toml"


def by_torch(state: Any, place: Path) -> Way:
    yield from ()
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def by_safetensors(state: Any, place: Path) -> Way:
    yield from ()
    return safetensors.torch.load(safetensors.torch.save(state))


class Reader(dcp.FileSystemReader):
    """Read the metadata in advance, since DCP, not tenterhook, unpickles it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.metadata: Metadata = super().read_metadata()

    def read_metadata(self, *args: Any, **options: Any) -> Metadata:
        return self.metadata


def _checkpoint(state: Any, place: Path) -> Reader:
    writer = dcp.FileSystemWriter(place / "dcp", sync_files=False)
    with _alone():
        dcp.save({"hooks": state}, storage_writer=writer, no_dist=True)
    return Reader(place / "dcp")


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Ignore the warning of DCP that there is only one process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def by_dcp(state: Any, place: Path) -> Way:
    reader = _checkpoint(state, place)
    places = yield lambda: th.DcpState(reader)
    with _alone():
        dcp.load({"hooks": places}, storage_reader=dcp.FileSystemReader(place / "dcp"), no_dist=True)
    return places.state_dict()


def by_metadata(change: Callable[[Metadata], None], place: Path) -> Way:
    """Write a checkpoint whose metadata is a harmless pickle with false content."""
    yield from ()
    kept = specimen()
    reader = _checkpoint(kept.rig.state_dict(), place)
    change(reader.metadata)
    return reader


CARRIERS: dict[str, Callable[[Any, Path], Way]] = {
    "memory": by_memory, "json file": by_json_file, "toml file": by_toml_file, "torch.load": by_torch,
    "safetensors": by_safetensors, "DCP": by_dcp, "DCP metadata": by_metadata,
}  # fmt: skip

_FILES = ("torch.load", "safetensors", "DCP")
_BOTH = ("restore", "load_state_dict")

#: for each form of an artefact: the carriers, and the readers of each
FORMS: dict[str, Mapping[str, tuple[str, ...]]] = {
    "json": {"memory": ("Plan.from_json",), "json file": ("Plan.load",)},
    "toml": {"memory": ("Plan.from_toml",), "toml file": ("Plan.load",)},
    "state": dict.fromkeys(_FILES, _BOTH),
    "whole": dict.fromkeys(_FILES[:2], _BOTH),
    "restored": dict.fromkeys(_FILES, ("restore",)),
    "loaded": dict.fromkeys(_FILES, ("load_state_dict",)),
    "torch": {"torch.load": _BOTH},
    "memory": {"memory": _BOTH},
    "metadata": {"DCP metadata": ("DcpState",)},
}
