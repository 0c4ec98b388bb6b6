"""Read a rig's state from a distributed checkpoint (DCP)."""

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
from tenterhook.resolve.grouping import Group, ranks_of
from tenterhook.rig.rig import Rig
from tenterhook.rig.saved.format import is_of_a_rank, prefix
from tenterhook.rig.saved.schema import DTYPES, HEADER, MAX_ENTRIES, MAX_HEADER, MAX_KEYS, PREFIX


class DcpState:
    """An object that `dcp.load` fills with a rig's saved state.

    `dcp.load` fills only the tensors that it is given, but a rig that has not run yet lacks some of the saved tensors.
    A `DcpState` provides an uninitialized tensor for each of the rig's entries in the checkpoint. Pass the `DcpState`
    to `dcp.load` instead of the rig. If `rig` is given, the state is loaded into that rig. Otherwise, pass the result
    of `state_dict()` to `th.restore` after `dcp.load`.

    Args:
        checkpoint: The checkpoint folder, or a DCP storage reader.
        rig: The rig that receives the state, or None.
        under: The key under which the rig was saved. Required only if the checkpoint contains several rigs.
        rename: Rules that map saved names to names on this model, as in `Rig.load_state_dict`.
        strict: If True, raise an error for state that does not match the rig. If False, load only the matching state.
        group: The ranks that train the model, as in `attach`. The default is the group of `rig`, or all ranks.

    Raises:
        StateError: The checkpoint is damaged or has no hook state, or it contains several rigs and `under` is None.

    Example:
        >>> import tempfile
        >>> import torch
        >>> import torch.distributed.checkpoint as dcp
        >>> import tenterhook as th
        >>> model, folder = torch.nn.Linear(2, 1), tempfile.mkdtemp()
        >>> _ = dcp.save({"hooks": th.watch(model)}, checkpoint_id=folder)
        >>> state = th.DcpState(folder)
        >>> dcp.load({"hooks": state}, checkpoint_id=folder)
        >>> rig = th.restore(model, state.state_dict(), replace=True)
        >>> list(rig.ledger)
        ['grads', 'outputs']
    """

    def __init__(
        self,
        checkpoint: str | Path | StorageReader,
        rig: Rig | None = None,
        *,
        under: str | None = None,
        rename: Mapping[str, str] | None = None,
        strict: bool = True,
        group: Group | None = None,
    ) -> None:
        reader = checkpoint if isinstance(checkpoint, StorageReader) else FileSystemReader(checkpoint)
        self._rig = rig
        self._options: dict[str, Any] = {"rename": rename, "strict": strict}
        self._tensors = _empty_tensors(reader.read_metadata(), under, _position(rig, group))

    def state_dict(self) -> dict[str, Tensor]:
        """Return the tensors of the state. `dcp.load` fills these tensors, which are uninitialized before that.

        Returns:
            Tensors by key, for `th.restore` or `Rig.load_state_dict`.
        """
        return dict(self._tensors)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Receive the tensors that `dcp.load` has read, and load them into the rig if one was given.

        Args:
            state: Tensors by key.

        Raises:
            MismatchError: The state does not fit the rig, and `strict` is True. Nothing is loaded.
            StateError: The state is damaged.
        """
        self._tensors = dict(state)
        if self._rig is not None:
            self._rig.load_state_dict(self._tensors, **self._options)


def _position(rig: Rig | None, group: Group | None) -> int:
    """Return the position of this rank in the group that trains the model."""
    if group is not None:
        return ranks_of(group).index(ranks.rank())
    return ranks.rank() if rig is None else rig._group.position


def _empty_tensors(metadata: Metadata, under: str | None, position: int) -> dict[str, Tensor]:
    """Return an uninitialized tensor for each entry of the rig that was saved under this key, or raise a StateError.

    `position` is the position of this rank in its group.
    """
    entries: dict[str, Any] = metadata.state_dict_metadata
    if len(entries) > MAX_KEYS:
        raise StateError(f"the checkpoint has {len(entries)} entries, but the limit is {MAX_KEYS}")
    header = prefix(0) + HEADER
    found = sorted(key.removesuffix(header) for key in entries if key.endswith(header))
    names = [f.removesuffix(".") for f in found]
    if not found:
        raise StateError("the checkpoint holds no hooks", remedy='save them: dcp.save({..., "hooks": rig})')
    if under is None and len(found) > 1:
        raise StateError(
            f"the checkpoint holds the hooks of {len(found)} rigs: {', '.join(map(repr, names))}",
            remedy=f"choose one: DcpState(..., under={names[0]!r})",
        )
    if under is not None and under not in names:
        raise StateError(
            f"the checkpoint holds no hooks under {under!r}", remedy=f"use one of {', '.join(map(repr, names))}"
        )
    before = found[names.index(under) if under is not None else 0]
    own = {key.removeprefix(before): e for key, e in entries.items() if key.startswith(before + PREFIX)}
    for key in own:
        if not is_of_a_rank(key):
            raise StateError(f"the saved state is damaged: the entry {key!r} is unknown")
    mine = prefix(position) if prefix(position) + HEADER in own else prefix(0)
    own = {key: entry for key, entry in own.items() if key.startswith(mine)}
    if len(own) > MAX_ENTRIES + 1:
        raise StateError(f"the state has more than {MAX_ENTRIES} entries")
    for key, entry in own.items():
        known = isinstance(entry, TensorStorageMetadata) and entry.properties.dtype in DTYPES.values()
        if not known or (key.endswith("/" + HEADER) and entry.size.numel() > MAX_HEADER):
            raise StateError(f"the saved state is damaged: the entry {key!r} is not a tensor that a rig can save")
    try:
        return {key: torch.empty(e.size, dtype=e.properties.dtype, device="cpu") for key, e in own.items()}
    except RuntimeError:
        raise StateError("the saved state is damaged: the declared size of an entry exceeds memory") from None
