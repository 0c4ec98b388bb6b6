"""Read the JSON files of a run folder, and check that they have the shape that a run writes."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from tenterhook.errors import StoreError
from tenterhook.record.verdict import Verdict

T = TypeVar("T")
#: text, numbers and counts by reason
Entry = dict[str, str | int | float | bool | dict[str, int] | None]


class LedgerFile(msgspec.Struct):
    """Holds the counters of each hook."""

    ledger: list[Entry]


class FindingsFile(msgspec.Struct):
    """Holds the findings of the doctor."""

    findings: list[Entry]


class FlightFile(msgspec.Struct):
    """Holds the report of a flight recorder."""

    path: str
    step: int
    reason: str
    suspects: list[Entry]
    verdict: Verdict | None = None


class VerdictsFile(msgspec.Struct):
    """Holds the verdicts about the training."""

    verdicts: list[Verdict]


class Layer(msgspec.Struct, array_like=True):
    """Holds the name of a module, the name of its class, and the names of its own parameters."""

    name: str
    type: str
    parameters: list[str] = []


class Setup(msgspec.Struct, frozen=True):
    """Holds where and how a model is trained. Runs with an equal setup compute equal bits."""

    torch: str
    device: str
    ranks: int
    sharded: bool
    compiled: bool
    #: the dtype of the parameters that has the fewest bits
    dtype: str
    #: the kind of processor, the number of threads and the memory format, which decide how sums are rounded
    rounding: str = ""


class ModelFile(msgspec.Struct):
    """Holds the modules of the model, in the order in which they ran if that is known, otherwise as defined."""

    layers: list[Layer]
    setup: Setup


def read_json(name: str, text: bytes, kind: type[T]) -> T:
    """Decode a JSON file. Raise a StoreError if it has another shape."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise StoreError(
            f"the file {name} does not have the content that a run writes: {str(error)[:200]}",
            remedy="restore the file, or move it out of the folder",
        ) from error
