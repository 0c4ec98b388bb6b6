"""What a saved state says of itself: the types and the limits of its header, format 1."""

from __future__ import annotations

from typing import Annotated

import msgspec
import torch

FORMAT = 1
PREFIX = "tenterhook/"
HEADER = "header"
MAX_HEADER = 1 << 20

_DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
)

DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in _DTYPES}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
MAX_INTEGER = 1 << 53
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_INTEGER)]
#: a step, or -1 for none
Step = Annotated[int, msgspec.Meta(ge=-1, le=MAX_INTEGER)]
#: what an entry may be: a tensor parameter of the whole state, or a hook's
TENSOR = "tensor"

OF_A_HOOK = (
    "targets",
    "ledger",
    "state",
    "pending",
    "partial",
    "fired",
    "free",
    "index",
    "pending_free",
    "pending_index",
    "generator",
)

#: those of which a hook has one
UNNAMED = ("targets", "ledger", "fired")
#: characters of a word that may be shown, and of a target's name
MOST_WORD, LONGEST_NAME = 256, 8192
MAX_KINDS, MAX_REASONS = 4096, 64
#: keys of a mapping that are gone through, and entries of a state
MAX_KEYS, MAX_ENTRIES = 1 << 19, 2048
#: bytes of a generator; of all else that a hook has for a target; of a target's name, on average
MAX_GENERATOR, MAX_FOR_A_TARGET, MAX_NAME = 1 << 16, 2048, 1024
#: what any model may have: targets, and bytes of state of its own shape
FEW_TARGETS, FEW_BYTES = 4096, 8 << 20


class Entry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What the header says of another tensor."""

    dtype: str
    shape: list[Count]
    digest: str


class SavedClock(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    step: Count
    #: the step a trigger last tripped in
    tripped: Step
    #: gradients had come to parameters since the last step
    accumulated: bool
    #: forwards of the root within the step, in evaluation and in training
    forwards: tuple[Count, Count]
    #: the last forward: its step, its number, whether in training
    last: tuple[Count, Count, bool]
    #: the optimizer whose step it counts; None without one
    optimizer: str | None
    #: the program says what a step is
    manual: bool


class SavedHook(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    action: str
    version: Count
    #: of the action's code; None for a built-in one, whose version says all
    fingerprint: str | None
    #: steps it was due in, and the last step that was counted
    due: Count
    counted: Step
    muted: bool
    #: of parameters "float32[4, 8]", of modules the class; the ledger's `kind` counts into it
    kinds: Annotated[list[str], msgspec.Meta(max_length=MAX_KINDS)]
    #: why sites muted themselves; the ledger's `muted` counts into it
    reasons: Annotated[list[str], msgspec.Meta(max_length=MAX_REASONS)]
    #: why firings were let pass; one more row of the ledger for each
    skipped: Annotated[list[str], msgspec.Meta(max_length=MAX_REASONS)]


class Header(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    torch: str
    python: str
    cpu: str
    threads: Count
    #: how many ranks there were, and whether they held shards, so that each rank's state is its own
    ranks: Count
    sharded: bool
    optimizers: list[str]
    clock: SavedClock
    plan: msgspec.Raw
    hooks: dict[str, SavedHook]
    entries: dict[str, Entry]
