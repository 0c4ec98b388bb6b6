"""Define the header types and the size limits of saved states in format 1."""

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
#: the number of a step, or -1 if there is none
Step = Annotated[int, msgspec.Meta(ge=-1, le=MAX_INTEGER)]
#: kinds of entries: TENSOR is a tensor parameter, which several hooks may use; the others belong to one hook each
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

#: kinds of entries without a name; a hook has at most one entry of each of these kinds
UNNAMED = ("targets", "ledger", "fired")
#: maximum length, in characters, of a word in the header and of a target's name
MOST_WORD, LONGEST_NAME = 256, 8192
MAX_KINDS, MAX_REASONS = 4096, 64
#: maximum number of keys in a mapping that are searched, and of entries in a state
MAX_KEYS, MAX_ENTRIES = 1 << 19, 2048
#: maximum size, in bytes: a generator's state, a hook's other data per target, and the average name of a target
MAX_GENERATOR, MAX_FOR_A_TARGET, MAX_NAME = 1 << 16, 2048, 1024
#: sizes that are allowed for any model: the number of targets per hook, and the size of the stored tensors in bytes
FEW_TARGETS, FEW_BYTES = 4096, 8 << 20


class Entry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The header entry that describes one saved tensor."""

    dtype: str
    shape: list[Count]
    digest: str


class SavedClock(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The step clock as it is stored in the header of a saved state."""

    step: Count
    #: the step in which a trigger last tripped
    tripped: Step
    #: True if parameters had received gradients since the last step
    accumulated: bool
    #: number of the root's forward passes in the current step, in evaluation mode and in training mode
    forwards: tuple[Count, Count]
    #: the last forward pass: its step, its index, and True if it ran in training mode
    last: tuple[Count, Count, bool]
    #: the optimizer whose steps are counted; None if there is no optimizer
    optimizer: str | None
    #: True if the program ends steps with `rig.step()`
    manual: bool


class SavedHook(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A hook as it is stored in the header of a saved state."""

    action: str
    version: Count
    #: digest of the action's code; None for a built-in action, which is identified by its version
    fingerprint: str | None
    #: the number of steps in which the hook was due, and the last step that was counted
    due: Count
    counted: Step
    muted: bool
    #: kinds of targets, such as "float32[4, 8]" for a parameter, or the class of a module; the row `kind` in the ledger
    #: contains indices into this list
    kinds: Annotated[list[str], msgspec.Meta(max_length=MAX_KINDS)]
    #: reasons why sites were muted after an error; the row `muted` in the ledger contains indices into this list
    reasons: Annotated[list[str], msgspec.Meta(max_length=MAX_REASONS)]
    #: reasons why firings were skipped; the ledger has an additional row for each reason
    skipped: Annotated[list[str], msgspec.Meta(max_length=MAX_REASONS)]


class Header(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The header, which describes a saved state."""

    torch: str
    python: str
    cpu: str
    threads: Count
    #: the number of ranks; `sharded` is True if the ranks had shards, because each rank then has a different state
    ranks: Count
    sharded: bool
    optimizers: list[str]
    clock: SavedClock
    plan: msgspec.Raw
    hooks: dict[str, SavedHook]
    entries: dict[str, Entry]
