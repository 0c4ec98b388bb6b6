"""Points in time: how many backwards and steps have run, and which graph node comes next."""

from __future__ import annotations

from dataclasses import dataclass

from tenterhook import torch_internals as private


@dataclass(frozen=True, slots=True)
class Moment:
    """Mark a point in time: the backwards and steps before it, and the number of the graph's next node."""

    backwards: int
    steps: int
    sequence: int


@dataclass(frozen=True, slots=True)
class RunningBackward:
    #: how it was called: `backward`, `backward(inputs=...)` or `autograd.grad`
    entry: str
    create_graph: bool


@dataclass(slots=True)
class Timeline:
    """Count the backwards and steps of one exam; hold the loss scale and the backward that runs."""

    #: whether the exam is open; outside of it nothing is recorded
    open: bool = False
    backwards: int = 0
    steps: int = 0
    #: the factor on the loss now
    scale: float = 1.0
    running: RunningBackward | None = None

    def now(self) -> Moment:
        return Moment(self.backwards, self.steps, private.sequence_number())
