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

from tenterhook import ranks
from tenterhook.errors import StateError
from tenterhook.rig.rig import Rig
from tenterhook.rig.saved.format import is_of_a_rank, prefix
from tenterhook.rig.saved.schema import DTYPES, HEADER, MAX_ENTRIES, MAX_HEADER, MAX_KEYS, PREFIX


class DcpState:
    """Read a rig's state by `dcp.load`: sized by the checkpoint itself, so that every entry has a place.

    `dcp.load` drops whatever it is given no place for, and a rig that has not run yet has none to give. With a `rig`,
    what was read is loaded into it, as `rename` and `strict` say; without, `th.restore(model, it.state_dict())` takes
    it. `under` is the key the rig was saved under, needed only if the checkpoint holds several.
    """

    def __init__(
        self,
        checkpoint: str | Path | StorageReader,
        rig: Rig | None = None,
        *,
        under: str | None = None,
        rename: Mapping[str, str] | None = None,
        strict: bool = True,
    ) -> None:
        reader = checkpoint if isinstance(checkpoint, StorageReader) else FileSystemReader(checkpoint)
        self._rig = rig
        self._options: dict[str, Any] = {"rename": rename, "strict": strict}
        self._tensors = _empty_tensors(reader.read_metadata(), under)

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self._tensors)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._tensors = dict(state)
        if self._rig is not None:
            self._rig.load_state_dict(self._tensors, **self._options)


def _empty_tensors(metadata: Metadata, under: str | None) -> dict[str, Tensor]:
    """Return an empty tensor for each entry of the rig saved under that key, or raise a StateError."""
    entries: dict[str, Any] = metadata.state_dict_metadata
    if len(entries) > MAX_KEYS:
        raise StateError(f"the checkpoint's {len(entries)} entries are too many to look through")
    header = prefix(0) + HEADER
    found = sorted(key.removesuffix(header) for key in entries if key.endswith(header))
    names = [f.removesuffix(".") for f in found]
    if not found:
        raise StateError("the checkpoint holds no hooks", remedy='save them: dcp.save({..., "hooks": rig})')
    if under is None and len(found) > 1:
        raise StateError(
            f"the checkpoint holds the hooks of {len(found)} rigs: {', '.join(map(repr, names))}",
            remedy=f"say which: DcpState(..., under={names[0]!r})",
        )
    if under is not None and under not in names:
        raise StateError(
            f"the checkpoint holds no hooks under {under!r}", remedy=f"it has {', '.join(map(repr, names))}"
        )
    before = found[names.index(under) if under is not None else 0]
    own = {key.removeprefix(before): e for key, e in entries.items() if key.startswith(before + PREFIX)}
    for key in own:
        if not is_of_a_rank(key):
            raise StateError(f"the saved state is damaged: the entry {key!r} has no meaning")
    mine = prefix(ranks.rank()) if prefix(ranks.rank()) + HEADER in own else prefix(0)
    own = {key: entry for key, entry in own.items() if key.startswith(mine)}
    if len(own) > MAX_ENTRIES + 1:
        raise StateError(f"the state has more than {MAX_ENTRIES} entries")
    for key, entry in own.items():
        known = isinstance(entry, TensorStorageMetadata) and entry.properties.dtype in DTYPES.values()
        if not known or (key.endswith("/" + HEADER) and entry.size.numel() > MAX_HEADER):
            raise StateError(f"the saved state is damaged: the entry {key!r} is not a tensor of ours")
    try:
        return {key: torch.empty(e.size, dtype=e.properties.dtype, device="cpu") for key, e in own.items()}
    except RuntimeError:
        raise StateError("the saved state is damaged: an entry is said to be larger than memory") from None
