"""A rig's state in a distributed checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.storage import StorageReader

from tenterhook.errors import StateError
from tenterhook.rig.rig import Rig
from tenterhook.rig.saved import DTYPES, HEADER, MAX_HEADER, PREFIX


class DcpState:
    """What `dcp.load` reads a rig's state into: sized by the checkpoint itself, so that every entry has a place.

    `dcp.load` drops whatever it is given no place for, and a rig that has not run yet has none to give. With a `rig`,
    what was read is loaded into it; without, `th.restore(model, it.state_dict())` takes it. `under` is the key the rig
    was saved under, needed only if the checkpoint holds several.
    """

    def __init__(
        self, checkpoint: str | Path | StorageReader, rig: Rig | None = None, *, under: str | None = None
    ) -> None:
        reader = checkpoint if isinstance(checkpoint, StorageReader) else FileSystemReader(checkpoint)
        self._rig = rig
        self._tensors = _places(reader.read_metadata(), under)

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self._tensors)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._tensors = dict(state)
        if self._rig is not None:
            self._rig.load_state_dict(self._tensors)


def _places(metadata: Metadata, under: str | None) -> dict[str, Tensor]:
    entries: dict[str, Any] = metadata.state_dict_metadata
    found = sorted(key.removesuffix(HEADER) for key in entries if key.endswith(HEADER))
    if under is not None:
        found = [f for f in found if f.removesuffix(".") == under]
    if not found:
        raise StateError("the checkpoint holds no hooks", remedy='save them: dcp.save({..., "hooks": rig})')
    if len(found) > 1:
        names = ", ".join(repr(f.removesuffix(".")) for f in found)
        raise StateError(f"the checkpoint holds {len(found)} rigs: {names}", remedy="say which: DcpState(..., under=)")
    before = found[0]
    own = {key.removeprefix(before): e for key, e in entries.items() if key.startswith(before + PREFIX)}
    for key, entry in own.items():
        known = isinstance(entry, TensorStorageMetadata) and entry.properties.dtype in DTYPES.values()
        if not known or (key == HEADER and entry.size.numel() > MAX_HEADER):
            raise StateError(f"the saved state is damaged: the entry {key!r} is not a tensor of ours")
    return {key: torch.empty(e.size, dtype=e.properties.dtype) for key, e in own.items()}
