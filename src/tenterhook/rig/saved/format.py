"""Define format 1 of a saved state: plain tensors by key, and a header in canonical JSON with a digest of each tensor.

The input is treated as untrusted. Sizes are checked before memory is allocated. The header must be byte-for-byte
identical to the header that this module would write for the same content. Nothing that the header names is imported or
run.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from tenterhook.errors import StateError, TenterhookError
from tenterhook.plan import Action, Plan
from tenterhook.resolve.targets import kind_of
from tenterhook.rig.saved.schema import (
    DTYPES,
    FEW_BYTES,
    FEW_TARGETS,
    FORMAT,
    HEADER,
    LONGEST_NAME,
    MAX_ENTRIES,
    MAX_FOR_A_TARGET,
    MAX_GENERATOR,
    MAX_HEADER,
    MAX_KEYS,
    MAX_NAME,
    MOST_WORD,
    NAMES,
    OF_A_HOOK,
    PREFIX,
    TENSOR,
    UNNAMED,
    Entry,
    Header,
)

#: number of bytes that are copied at a time to compute a digest
CHUNK = 1 << 20
NAMED = f"use names of 1 to {LONGEST_NAME} printable characters"


class _Sealed(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    tenterhook: int
    digest: str
    state: msgspec.Raw


class _Version(msgspec.Struct, frozen=True):
    tenterhook: int


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """Limits by which a state that is far too large for its model is rejected before it is read."""

    #: expected maximum number of targets per hook
    targets: int
    model: nn.Module

    def check(self, entries: Mapping[str, Entry]) -> None:
        """Raise a StateError if an entry or the whole state is too large."""
        if len(entries) > MAX_ENTRIES:
            raise StateError(
                f"the state has {len(entries)} entries, but the limit is {MAX_ENTRIES}",
                remedy="use fewer hooks, or actions with fewer state names",
            )
        targets, free = max(FEW_TARGETS, 4 * self.targets), 0
        for key, entry in entries.items():
            kind = key.partition("/")[0]
            size = math.prod(entry.shape) * (DTYPES[entry.dtype].itemsize if entry.dtype in DTYPES else 1)
            if kind in (TENSOR, "free", "pending_free"):
                free += size
            elif size > {"generator": MAX_GENERATOR, "targets": (targets + 64) * MAX_NAME}.get(
                kind, targets * MAX_FOR_A_TARGET
            ):
                raise StateError(
                    f"the entry {_shown(key)} has {size} bytes, which is too many for this model",
                    remedy="pass the state that was saved with this model",
                )
        if free > FEW_BYTES and free > (most := 16 * _size_of(self.model)):
            raise StateError(
                f"the tensors that hooks store have {free} bytes, but the limit is {most} bytes (16 times the model)",
                remedy="store such large tensors in a separate file",
            )


def _size_of(model: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters())


@dataclass(frozen=True, slots=True)
class SavedState:
    """A saved state that has been read and verified."""

    header: Header
    plan: Plan
    #: tensor parameters by name
    tensors: Mapping[str, Tensor]
    #: tensors by hook and kind, then by the remaining part of the key
    parts: Mapping[tuple[str, str], Mapping[str, Tensor]]

    def entries(self, hook: str, kind: str) -> Mapping[str, Tensor]:
        """Return a hook's tensors of one kind, by the remaining part of the key."""
        return self.parts.get((hook, kind), {})


def prefix(rank: int) -> str:
    """Return the prefix of a rank's keys. Each rank has its own prefix, because a checkpoint may merge equal keys."""
    return f"{PREFIX}rank{rank}/"


def key_of(kind: str, *parts: str) -> str:
    """Join the parts of a key. Only a name may contain slashes, so the name must be the last part."""
    return "/".join((kind, *parts))


def write(
    header: Mapping[str, Any], tensors: Mapping[str, Tensor], limits: SizeLimits, position: int
) -> dict[str, Tensor]:
    """Return a state dict that contains these tensors and a header with a digest of each tensor.

    `position` is the position of this rank in its group.
    """
    entries = {key: _entry(key, tensor) for key, tensor in tensors.items()}
    limits.check(entries)
    made = Header(**header, entries=entries)
    for word in _words(made):
        if not _is_shown(word):
            raise StateError(f"the name {word!r} cannot be saved", remedy=f"use up to {MOST_WORD} printable characters")
    state = _canonical(made)
    text = _canonical(_Sealed(FORMAT, digest(state), msgspec.Raw(state)))
    if len(text) > MAX_HEADER:
        raise StateError(f"the header has {len(text)} bytes, but the limit is {MAX_HEADER}", remedy="use fewer hooks")
    before = prefix(position)
    return {before + HEADER: as_tensor(text), **{before + key: tensor for key, tensor in tensors.items()}}


def read(given: Mapping[str, Tensor], limits: SizeLimits, position: int = 0) -> SavedState | None:
    """Read the state from a mapping that may contain other entries. Return None if there is no state.

    Raises:
        StateError: The state is damaged.
    """
    if not isinstance(given, Mapping):
        raise StateError(
            f"the state must be a mapping, but its type is {type(given).__name__}",
            remedy="load the file with torch.load, and pass the entry in which you saved rig.state_dict()"
            if isinstance(given, str | os.PathLike)
            else "pass the dict that rig.state_dict() returned",
        )
    if len(given) > MAX_KEYS:
        raise StateError(
            f"the mapping has {len(given)} entries, but the limit is {MAX_KEYS}",
            remedy="pass only the entries of the hooks",
        )
    before, own = prefix(position), _entries_of(given, position)
    if not own:
        before, own = prefix(0), _entries_of(given, 0)
    if not own:
        _find_elsewhere(given)
        return None
    header = _header(own, before + HEADER)
    plan = _plan(header)
    limits.check(header.entries)
    named = {before + key: entry for key, entry in header.entries.items()}
    for key in own.keys() - named.keys() - {before + HEADER}:
        raise _damaged(f"the entry {_shown(key)} does not belong to this state")
    for key, entry in named.items():
        if key not in own:
            raise _damaged(f"the entry {_shown(key)} is missing")
        _check(key, own[key], entry)
    for key, entry in named.items():
        if digest(own[key]) != entry.digest:
            raise _damaged(f"the entry {_shown(key)} has changed since it was saved")
    return _sorted(header, plan, {key: own[before + key].detach() for key in header.entries})


def _entries_of(given: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """Return a rank's entries."""
    own, mine = {}, prefix(rank)
    for key, value in given.items():
        if not isinstance(key, str) or not key.startswith(PREFIX):
            continue
        if key.startswith(mine):
            own[key] = value
            if len(own) > MAX_ENTRIES + 1:
                raise StateError(f"the state has more than {MAX_ENTRIES} entries")
        elif not is_of_a_rank(key):
            raise _damaged(f"the entry {_shown(key)} is unknown")
    return own


def is_of_a_rank(key: str) -> bool:
    """Return True if a key begins with a rank's prefix."""
    rank, _, rest = key.removeprefix(PREFIX).partition("/")
    number = rank.removeprefix("rank")
    plain = number.isascii() and number.isdecimal() and (number == "0" or number[0] != "0")
    return rank != number and plain and bool(rest)


def _sorted(header: Header, plan: Plan, entries: Mapping[str, Tensor]) -> SavedState:
    """Group the entries by hook and kind."""
    tensors: dict[str, Tensor] = {}
    parts: dict[tuple[str, str], dict[str, Tensor]] = {}
    for key, tensor in entries.items():
        kind, _, rest = key.partition("/")
        if kind == TENSOR and rest and key.isprintable():
            tensors[rest] = tensor
            continue
        hook, _, name = rest.partition("/")
        known = kind in OF_A_HOOK and hook in header.hooks and key.isprintable()
        if not known or bool(name) == (kind in UNNAMED):
            raise _damaged(f"the entry {_shown(key)} is unknown")
        parts.setdefault((hook, kind), {})[name] = tensor
    return SavedState(header, plan, tensors, parts)


def _header(own: Mapping[str, Any], key: str) -> Header:
    tensor = own.get(key)
    if tensor is None:
        raise _damaged(f"the entry {key!r} is missing")
    _check_plain(key, tensor)
    if tensor.dtype != torch.uint8 or tensor.dim() != 1:
        raise _damaged("the header is not a one-dimensional tensor of bytes")
    if tensor.numel() > MAX_HEADER:
        raise StateError(f"the header has {tensor.numel()} bytes, but the limit is {MAX_HEADER}")
    text = as_bytes(tensor)
    version = _decoded(text, _Version).tenterhook
    if version != FORMAT:
        raise StateError(
            f"the state has format {version}, but this version of tenterhook reads format {FORMAT}",
            remedy="load it with the version of tenterhook that wrote it, or a later version",
        )
    sealed = _decoded(text, _Sealed)
    if digest(bytes(sealed.state)) != sealed.digest:
        raise _damaged("the header has changed since it was saved")
    header: Header = _decoded(bytes(sealed.state), Header)
    if _canonical(_Sealed(FORMAT, sealed.digest, msgspec.Raw(_canonical(header)))) != text:
        raise _damaged("the header is not canonical JSON")
    return header


def _decoded(text: bytes, type: type[Any]) -> Any:
    try:
        return msgspec.json.decode(text, type=type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(f"the header cannot be read: {error}") from None


def _plan(header: Header) -> Plan:
    text = bytes(header.plan)
    try:
        plan = Plan.from_json(text)
        canonical = plan.to_json().encode()
    except TenterhookError as error:
        raise StateError(f"the saved plan cannot be read: {error.fact}", hook=error.hook) from None
    if canonical != text:
        raise _damaged("the saved plan is not canonical JSON")
    if not all(map(_is_shown, _words(header))):
        raise _damaged("the header has a name that is too long or not printable")
    actions = {hook.id: hook.do.name for hook in plan if isinstance(hook.do, Action)}
    if actions != {id: hook.action for id, hook in header.hooks.items()}:
        raise _damaged("the header and its plan have different hooks")
    return plan


def is_name(name: str) -> bool:
    """Return True if a target's name can be saved."""
    return 0 < len(name) <= LONGEST_NAME and name.isprintable()


def _is_shown(word: str) -> bool:
    return len(word) <= MOST_WORD and word.isprintable()


def _words(header: Header) -> Iterator[str]:
    yield from (header.torch, header.python, header.cpu, header.clock.optimizer or "", *header.optimizers)
    for hook in header.hooks.values():
        yield from (hook.action, hook.fingerprint or "", *hook.kinds, *hook.reasons, *hook.skipped)


def _check(key: str, tensor: Any, entry: Entry) -> None:
    """Raise an error if the type, dtype or shape of an entry does not match the header. The values are not read."""
    _check_plain(key, tensor)
    dtype = DTYPES.get(entry.dtype)
    if dtype is None:
        raise _damaged(f"the entry {_shown(key)} has the unknown dtype {_shown(entry.dtype)}")
    if tensor.dtype != dtype or list(tensor.shape) != entry.shape:
        raise _damaged(
            f"the entry {_shown(key)} is {kind_of(tensor)}, not {entry.dtype}{_shown(entry.shape, quoted=False)}"
        )


def _check_plain(key: str, tensor: Any) -> None:
    if type(tensor) not in (Tensor, nn.Parameter):
        raise _damaged(f"the entry {_shown(key)} must be a tensor, but its type is {type(tensor).__name__}")
    # An expanded tensor may report far more elements than it stores in memory.
    if not is_plain(tensor) or not tensor.is_contiguous() or tensor.is_neg() or tensor.is_conj():
        raise _damaged(f"the entry {_shown(key)} is not a plain, contiguous tensor")


def is_plain(tensor: Tensor) -> bool:
    """Return True if a tensor is dense and strided, and its type is `Tensor` or `Parameter`."""
    strided = tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_nested
    return strided and tensor.device.type != "meta" and type(tensor) in (Tensor, nn.Parameter)


def _find_elsewhere(given: Mapping[str, Any], path: str = "") -> None:
    """Raise an error that names the location of the hook state if its keys have a prefix or are nested."""
    for key, value in given.items():
        if isinstance(value, Mapping) and path.count("[") < 3:
            _find_elsewhere(value, f"{path}[{_shown(key)}]")
        elif isinstance(key, str) and key.endswith(f"/{HEADER}") and PREFIX in key:
            before = key[: key.index(PREFIX)]
            if before:
                raise StateError(
                    f"the keys of the hooks have the prefix {_shown(before)}",
                    remedy=f"remove it: {{k.removeprefix({_shown(before)}): t for k, t in sd{path}.items()}}",
                )
            raise StateError("the state of the hooks is in a nested mapping", remedy=f"pass this entry: sd{path}")


def _entry(key: str, tensor: Tensor) -> Entry:
    if not key.isprintable():
        raise StateError(f"the entry {key!r} contains a non-printable character, so it cannot be saved")
    if tensor.dtype not in NAMES:
        raise StateError(f"the entry {key!r} has dtype {tensor.dtype}, which cannot be saved")
    return Entry(NAMES[tensor.dtype], list(tensor.shape), digest(tensor))


def digest(data: Tensor | bytes) -> str:
    """Compute the 128-bit BLAKE2b digest of the bytes. The digest detects damage, but does not prevent forgery."""
    made = hashlib.blake2b(digest_size=16)
    for part in _parts(data) if isinstance(data, Tensor) else (data,):
        made.update(part)
    return made.hexdigest()


def _parts(tensor: Tensor) -> Iterator[bytearray]:
    flat = tensor.detach().reshape(-1)
    if flat.numel() < 2:  # for such a tensor, `is_contiguous` accepts strides that `view` rejects
        flat = torch.empty_like(flat.cpu(), memory_format=torch.contiguous_format).copy_(flat)
    flat = flat.view(torch.uint8)
    for part in flat.split(CHUNK) if flat.numel() else ():
        held = bytearray(part.numel())
        torch.frombuffer(held, dtype=torch.uint8).copy_(part)
        yield held


def as_bytes(tensor: Tensor) -> bytes:
    return b"".join(_parts(tensor))


def as_tensor(data: bytes) -> Tensor:
    return (
        torch.frombuffer(bytearray(data), dtype=torch.uint8)
        if data
        else torch.empty(0, dtype=torch.uint8, device="cpu")
    )


def _canonical(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _damaged(fact: str) -> StateError:
    return StateError(f"the saved state is damaged: {fact}", remedy="load an earlier checkpoint")


def _shown(value: Any, *, quoted: bool = True) -> str:
    value = value[:100] if isinstance(value, str | list) else value
    text = repr(value) if quoted else str(value)
    return text if len(text) <= 100 else text[:97] + "..."
