"""Read and check one hook's saved state."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tenterhook.actions import Definition
from tenterhook.errors import StateError
from tenterhook.resolve.targets import device_of, devices_of
from tenterhook.rig.runtime.attached_hook import MUTED
from tenterhook.rig.runtime.hook_state import HookState
from tenterhook.rig.saved.format import SavedState, as_bytes, is_name
from tenterhook.rig.saved.load_report import LoadReport
from tenterhook.rig.saved.schema import DTYPES, MAX_INTEGER, SavedHook
from tenterhook.rig.saved.writer import ROWS

MAX_DIMS, MAX_LENGTH = 16, 1 << 31


def read_ledger(saved: SavedState, id: str, said: SavedHook) -> Tensor:
    rows = len(ROWS) + len(said.skipped)
    ledger = saved.entries(id, "ledger").get("")
    if ledger is None:
        return torch.empty(rows, 0, dtype=torch.int64, device="cpu")
    if ledger.dtype != torch.int64 or ledger.dim() != 2 or ledger.shape[0] != rows:
        raise unreadable("ledger", id)
    ledger = ledger.cpu()
    top = torch.full((rows, 1), MAX_INTEGER, device="cpu")
    top[ROWS.index("kind")], top[ROWS.index("muted")] = len(said.kinds) - 1, len(said.reasons) - 1
    low = torch.zeros(rows, 1, dtype=torch.int64, device="cpu")
    for name in ("first", "last", "kind", "muted"):
        low[ROWS.index(name)] = -1
    if bool(((ledger < low) | (ledger > top)).any()) or not all(why.startswith(MUTED) for why in said.reasons):
        raise unreadable("ledger", id)
    return ledger


def read_names(saved: SavedState, id: str, sites: int) -> list[str]:
    tensor = saved.entries(id, "targets").get("")
    if tensor is None or not sites:
        if tensor is None and not sites:
            return []
        raise unreadable("list of targets", id)
    if tensor.dtype != torch.uint8 or tensor.dim() != 1 or int((tensor == 0).sum()) != sites - 1:
        raise unreadable("list of targets", id)
    try:
        names = as_bytes(tensor).decode().split("\0")
    except UnicodeDecodeError:
        raise unreadable("list of targets", id) from None
    if len(set(names)) != sites or not all(map(is_name, names)):
        raise unreadable("list of targets", id)
    return names


def read_state(
    saved: SavedState, id: str, definition: Definition[...], sites: int, report: LoadReport, model: nn.Module
) -> HookState:
    state, device = HookState(definition, sites), device_of(model)
    for kind, table in (("state", state.packed), ("pending", state.pending)):
        for name, tensor in saved.entries(id, kind).items():
            if tensor.dtype != torch.float64 or list(tensor.shape) != [sites]:
                raise unreadable(kind, id)
            if name in definition.state:
                table[name] = tensor.to(device, copy=True)
            else:
                report.add("state", f"{definition.name!r} has no state {name!r} in this program", hook=id)
    if state.packed and state.packed.keys() != definition.state.keys():
        for name in definition.state.keys() - state.packed.keys():
            report.add("state", f"the state {name!r} was not saved", hook=id)
            state.packed[name] = torch.full((sites,), definition.state[name], dtype=torch.float64, device=device)
    for kind, index, free in (("free", "index", state.free), ("pending_free", "pending_index", state.pending_free)):
        for group, rows in saved.entries(id, index).items():
            found = _unjoined(id, group, rows, saved.entries(id, kind).get(group), sites, device)
            if found.keys() & free.keys():
                raise unreadable("free state", id)
            free.update(found)
        if saved.entries(id, kind).keys() - saved.entries(id, index).keys():
            raise unreadable(kind, id)
    for name, tensor in saved.entries(id, "generator").items():
        where, _, seed = name.rpartition("/")
        if where not in devices_of(model):
            report.add("state", f"its generator was on {where}, but this model is not on that device", hook=id)
        else:
            state.generators[where, _seed(id, seed)] = _generator(id, where, tensor)
    return state


def _seed(id: str, text: str) -> int:
    if not _is_plain(text):
        raise unreadable("generator", id)
    return int(text)


def _is_plain(text: str) -> bool:
    """Return True if the text is an integer in the form that the writer uses."""
    digits = text.removeprefix("-").isdecimal() and text.isascii() and len(text) <= 20
    return digits and str(int(text)) == text


def _unjoined(
    id: str, group: str, rows: Tensor, flat: Tensor | None, sites: int, device: torch.device
) -> dict[tuple[int, str], Tensor]:
    dtype, _, rest = group.partition("/")
    dims, _, name = rest.partition("/")
    count = int(dims) if _is_plain(dims) else MAX_DIMS + 1
    shaped = rows.dtype == torch.int64 and rows.dim() == 2 and rows.shape[1] == 1 + count and len(rows) <= sites
    if not 0 <= count <= MAX_DIMS or dtype not in DTYPES or not name or not shaped:
        raise unreadable("free state", id)
    flat = torch.empty(0, dtype=DTYPES[dtype], device="cpu") if flat is None else flat
    listed = rows.tolist()
    sizes = [math.prod(shape) for _, *shape in listed]
    whole = all(
        0 <= slot < sites and min(shape, default=0) >= 0 and max(shape, default=0) <= MAX_LENGTH
        for slot, *shape in listed
    )
    distinct = len({slot for slot, *_ in listed}) == len(listed)
    if not whole or not distinct or flat.dtype != DTYPES[dtype] or flat.dim() != 1 or sum(sizes) != flat.numel():
        raise unreadable("free state", id)
    try:
        parts = [part.reshape(shape) for (_, *shape), part in zip(listed, flat.split(sizes), strict=True)]
    except RuntimeError:  # the shape of an empty tensor may exceed PyTorch's limits
        raise unreadable("free state", id) from None
    return {(slot, name): part.to(device, copy=True) for (slot, *_), part in zip(listed, parts, strict=True)}


def _generator(id: str, device: str, tensor: Tensor) -> torch.Generator:
    if tensor.dtype != torch.uint8 or tensor.dim() != 1:
        raise unreadable("generator", id)
    generator = torch.Generator(device)
    try:
        generator.set_state(tensor.cpu().clone())
    except (RuntimeError, TypeError):
        raise unreadable("generator", id) from None
    return generator


def read_partials(
    saved: SavedState, id: str, definition: Definition[...], sites: int, device: torch.device
) -> Mapping[str, Tensor]:
    found = saved.entries(id, "partial")
    widths = {name: partial.width for name, partial in definition.partials.items()}
    for name, tensor in found.items():
        if tensor.dtype != torch.float64 or list(tensor.shape) != [sites, widths.get(name, -1)]:
            raise unreadable("partial results", id)
    return {name: tensor.to(device, copy=True) for name, tensor in found.items()}


def read_fired(
    saved: SavedState, id: str, definition: Definition[...], sites: int, partials: Mapping[str, Tensor]
) -> bytes:
    tensor = saved.entries(id, "fired").get("")
    if tensor is None and not partials:
        return b""
    complete = partials.keys() == definition.partials.keys() and not definition.modifies
    if tensor is None or not complete or tensor.dtype != torch.uint8 or list(tensor.shape) != [sites]:
        raise unreadable("partial results", id)
    if bool((tensor > 1).any()):
        raise unreadable("partial results", id)
    return as_bytes(tensor)


def unreadable(what: str, id: str) -> StateError:
    return StateError(
        f"the saved state is damaged: its {what} cannot be read", hook=id, remedy="load an earlier checkpoint"
    )
