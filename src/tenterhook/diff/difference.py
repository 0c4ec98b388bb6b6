"""Define where two runs differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: what differs first: what the model was given, its weights before a step, an output, the loss, a gradient, the
#: learning rate, or an update
Kind = Literal["data", "weights", "forward", "loss", "backward", "rate", "update"]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference between two runs, or that there is none.

    Attributes:
        sentence: What the comparison found, in one or two sentences.
        equal: True if the runs are equal, False if they differ, None if nothing could be compared.
        exact: True if the bits were compared, False if numbers were compared with a tolerance.
        step: The first step with a difference.
        target: The first module or parameter with a difference, in the order of execution.
        kind: What differs: `"data"`, `"weights"`, `"forward"`, `"loss"`, `"backward"`, `"rate"` or `"update"`.
        relative: How large the difference is, relative to the number.
        others: How many other targets differ in the same step and in the same kind.
        rank: The rank with the difference, or None if there is one rank or the number is equal on all ranks.
    """

    sentence: str
    equal: bool | None
    exact: bool = False
    step: int | None = None
    target: str | None = None
    kind: Kind | None = None
    relative: float | None = None
    others: int = 0
    rank: int | None = None

    def __str__(self) -> str:
        return self.sentence
