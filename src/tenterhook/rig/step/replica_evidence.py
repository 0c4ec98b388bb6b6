"""Find in which tensor and on which ranks replicas differ, and what the difference looks like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal

import torch
from torch import Tensor

from tenterhook.actions.replicas import ReplicaDigest, shorten
from tenterhook.ranks import RankGroup

#: the number of a rank that has no digest; a digest is never so small
ABSENT = -(1 << 62)
#: the number of a gradient that does not exist; a digest is never so large
_NONE = 1 << 61
#: number of parts into which a tensor is divided, to count those that differ
_PARTS = 1024
#: number of elements of a tensor whose values are compared
_SAMPLE = 1024
#: relative differences up to this one are rounding
_ROUNDING = 1e-5
#: values with a larger relative difference have nothing in common
_UNRELATED = 0.3
#: number of ranks that a sentence lists
_LISTED = 8

#: a tensor of a hook: the slot of its site, and 0 for the parameter or 1 for the gradient
Key = tuple[int, int]


class Cause(Enum):
    """Lists the causes that evidence can show, each with what to do."""

    FEWER_STEPS = "make the same number of optimizer steps, and load the same checkpoint, on every rank"
    FEW_VALUES = "look for code that writes to this tensor on one rank; otherwise suspect the memory or the processor"
    OTHER_VALUES = (
        "broadcast the model from one rank, or use the same seed; look for code that replaces this tensor on one rank"
    )
    OTHER_UPDATE = (
        "look for an optimizer step that one rank skipped, and compare the settings and the state of the optimizers"
    )
    NOT_REDUCED = "reduce this gradient: with DDP, call the wrapped model, and use no_sync() only before the last pass"
    ROUNDING = "use deterministic kernels: torch.use_deterministic_algorithms(True)"
    NO_GRADIENT = "let the parameter have a gradient on every rank, or set find_unused_parameters=True for DDP"
    UNKNOWN = "record both runs with tenterhook run --for-diff, or compare this tensor on both ranks"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Describes the first difference between replicas.

    Args:
        target: The name of the parameter.
        of: Whether the parameter itself or its gradient differs.
        odd: The ranks that differ from the majority; empty if there is no majority.
        ranks: The ranks that have the tensor.
        parts: How many parts of the tensor differ, and how many it has.
        distance: The largest relative difference of a part's values from their mean over the ranks.
        others: Number of other parameters and gradients that differ.
        steps: For each rank, how many steps the state of its optimizer counts.
        cause: What the evidence shows.
    """

    target: str
    of: Literal["parameter", "gradient"]
    odd: tuple[int, ...]
    ranks: tuple[int, ...]
    parts: tuple[int, int]
    distance: float
    others: int
    steps: dict[int, int]
    cause: Cause

    @property
    def remedy(self) -> str:
        """Return what to do."""
        return self.cause.value

    def sentence(self, step: int, equal: int | None) -> str:
        """Return the difference as a sentence.

        Args:
            step: The step in which it was found.
            equal: The last step in which the whole model was known to be equal, or None.
        """
        if self.of == "gradient":
            return f"the gradient of {self.target!r} {self._where()} in step {step}. {self._looks()}"
        known = f", and was equal before step {equal}" if equal is not None else ""
        return f"the parameter {self.target!r} {self._where()} before step {step}{known}. {self._looks()}"

    def _where(self) -> str:
        if not self.odd:
            return f"differs between the {len(self.ranks)} ranks {_listed(self.ranks)}"
        most = [one for one in self.ranks if one not in self.odd]
        return f"on rank {_listed(self.odd)} differs from rank {_listed(most)}"

    def _looks(self) -> str:
        count, total = self.parts
        some = f"{count} of its {total} parts differ{'s' * (count == 1)}"
        how = some if count < total else "All of it differs"
        if self.cause is Cause.FEW_VALUES:
            return f"Only {how}, so it was changed in a few places"
        if self.cause is Cause.FEWER_STEPS:
            counts = ", ".join(f"rank {rank} {steps}" for rank, steps in sorted(self.steps.items())[:_LISTED])
            return f"The states of the optimizers count different numbers of steps: {counts}"
        size = f"{how} by {self.distance:.1g} of its size"
        texts = {
            Cause.OTHER_VALUES: f"{how}, and the values have nothing in common",
            Cause.OTHER_UPDATE: f"{size}, so its updates were not the same, or it was overwritten",
            Cause.NOT_REDUCED: f"{how}, and each rank has its own: it was not reduced, or changed afterwards",
            Cause.ROUNDING: f"{how} by only {self.distance:.1g} of its size, so it was rounded in another way",
            Cause.NO_GRADIENT: "Some ranks have no gradient",
        }
        return texts.get(self.cause, size) + self._more()

    def _more(self) -> str:
        return f"; {self.others} more tensors differ" if self.others else ""


@torch.no_grad()
def find_evidence(
    group: RankGroup, names: Sequence[str], tensors: Mapping[Key, Tensor], *, steps: int, is_first: bool
) -> Evidence | None:
    """Compare the tensors of all ranks. Return None if they are equal.

    Every rank of the group must call this function. A rank without replicas gives no tensors.

    Args:
        group: The ranks that hold the model.
        names: The names of the parameters, by slot.
        tensors: The flat parameters and gradients of this rank.
        steps: The number of steps that this rank's optimizers count, or 0.
        is_first: True if nothing was compared in earlier steps.
    """
    digests = dict(zip(tensors, shorten([ReplicaDigest(0, one.device).of(one) for one in tensors.values()])))
    digests |= {(slot, 1): _NONE for slot, of in tensors if not of and (slot, 1) not in tensors}
    keys = [(slot, of) for of in (0, 1) for slot in range(len(names))]
    differing = _differing(group, keys, digests)
    if not differing:
        return None
    first = differing[0]
    table = _by_rank(group, digests.get(first), steps)
    of = [key for key in differing if key[1] == first[1]]
    largest = max((key for key in of if key in tensors), key=lambda key: tensors[key].numel(), default=first)
    parts = _parts(group, tensors.get(first))
    distances = [_distance(group, tensors.get(key), len(table)) for key in (first, largest)]
    found = Evidence(
        names[first[0]],
        "gradient" if first[1] else "parameter",
        _odd({rank: digest for rank, (digest, _) in table.items()}),
        tuple(sorted(table)),
        parts,
        distances[0],
        len(differing) - 1,
        {rank: count for rank, (_, count) in table.items()},
        Cause.UNKNOWN,
    )
    shared = len(of) / max(_count(group, keys, digests, first[1]), 1)
    distinct = len({digest for digest, _ in table.values()})
    lacks = any(digest == _NONE for digest, _ in table.values())
    if lacks:
        return replace(found, cause=Cause.NO_GRADIENT)
    few = len(of) == 1 and parts[0] < parts[1] and (parts[0] <= 2 or parts[0] <= parts[1] // 100)
    cause = Cause.FEW_VALUES if few else _cause(found, shared, distances[1], distinct, is_first=is_first)
    return replace(found, cause=cause)


def _cause(found: Evidence, shared: float, distance: float, distinct: int, *, is_first: bool) -> Cause:
    """Return what the evidence shows.

    Args:
        found: The evidence.
        shared: The fraction of the parameters, or of the gradients, that differ.
        distance: The relative difference of the largest tensor that differs.
        distinct: How many different versions there are.
        is_first: True if nothing was compared in earlier steps.
    """
    if distance <= _ROUNDING:
        return Cause.ROUNDING if found.of == "gradient" else Cause.UNKNOWN
    if found.of == "gradient":
        return Cause.NOT_REDUCED if distinct == len(found.ranks) else Cause.UNKNOWN
    if len(set(found.steps.values())) > 1:
        return Cause.FEWER_STEPS
    if 2 * found.parts[0] < found.parts[1]:
        return Cause.UNKNOWN
    if distance > _UNRELATED and (is_first or shared < 0.5):
        return Cause.OTHER_VALUES
    return Cause.OTHER_UPDATE if shared >= 0.5 and not is_first else Cause.UNKNOWN


def _differing(group: RankGroup, keys: Sequence[Key], digests: Mapping[Key, int]) -> list[Key]:
    """Return the tensors whose digests differ between the ranks that have one, the parameters first."""
    given = [digests.get(key, ABSENT) for key in keys]
    highest = group.max_of(given + [ABSENT if one == ABSENT else -one for one in given])
    return [key for key, high, low in zip(keys, highest, highest[len(keys) :]) if ABSENT != high != -low]


def _count(group: RankGroup, keys: Sequence[Key], digests: Mapping[Key, int], of: int) -> int:
    """Return how many parameters, or gradients, at least one rank compares."""
    return sum(group.max_of([key in digests and key[1] == of for key in keys]))


def _by_rank(group: RankGroup, digest: int | None, steps: int) -> dict[int, tuple[int, int]]:
    """Return the digest and the step count of each rank that has the tensor."""
    table = torch.zeros(group.size, 2, dtype=torch.int64, device="cpu")
    if digest is not None:
        table[group.position] = torch.tensor([digest + 1, steps], device="cpu")
    rows = group.sum(table).tolist()
    return {rank: (row[0] - 1, row[1]) for rank, row in zip(group.members, rows) if row[0]}


def _odd(digests: Mapping[int, int]) -> tuple[int, ...]:
    """Return the ranks that differ from the majority, or none of them if there is no majority."""
    (most, count), *_ = Counter(digests.values()).most_common()
    return tuple(sorted(rank for rank, one in digests.items() if one != most)) if 2 * count > len(digests) else ()


def _parts(group: RankGroup, tensor: Tensor | None) -> tuple[int, int]:
    """Return how many parts of a tensor differ, and how many it has."""
    numbers: list[int] = []
    if tensor is not None:
        digest = ReplicaDigest(1, tensor.device)
        numbers = shorten([digest.of(part) for part in tensor.split(max(-(-tensor.numel() // _PARTS), 1))])
    given = numbers + [ABSENT] * (_PARTS - len(numbers))
    highest = group.max_of(given + [ABSENT if one == ABSENT else -one for one in given])
    pairs = [(high, -low) for high, low in zip(highest, highest[_PARTS:]) if high != ABSENT]
    return sum(high != low for high, low in pairs), len(pairs)


def _distance(group: RankGroup, tensor: Tensor | None, ranks: int) -> float:
    """Return how far some values of a tensor are from their mean over the ranks, relative to the mean."""
    mine = torch.zeros(_SAMPLE, dtype=torch.float64, device="cpu")
    if tensor is not None:
        every = max(tensor.numel() // _SAMPLE, 1)
        values = tensor[: every * _SAMPLE : every][:_SAMPLE]
        mine[: values.numel()] = values.abs().cpu().double() if values.is_complex() else values.cpu().double()
    mine = mine.nan_to_num()
    mean = group.sum(mine.clone()) / max(ranks, 1)
    far = 0.0 if tensor is None else float((mine - mean).norm() / mean.norm().clamp(min=1e-300))
    return float(group.max(torch.tensor([far], dtype=torch.float64, device="cpu")))


def _listed(ranks: Sequence[int]) -> str:
    named = ", ".join(map(str, ranks[:_LISTED]))
    return f"{named} and {len(ranks) - _LISTED} more" if len(ranks) > _LISTED else named
