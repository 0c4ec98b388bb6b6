"""Count the backwards and steps of an exam, so that observations can be ordered in time."""

from __future__ import annotations

from dataclasses import dataclass

from tenterhook import torch_internals as private


@dataclass(frozen=True, slots=True)
class Moment:
    """Mark a point in time."""

    #: the numbers of backwards and steps before it
    backwards: int
    steps: int
    #: the sequence number that autograd gives to its next node
    sequence: int


@dataclass(frozen=True, slots=True)
class RunningBackward:
    """Describe the backward that is running."""

    #: how the program started it: `backward`, `backward(inputs=...)` or `autograd.grad`
    entry: str
    create_graph: bool


@dataclass(slots=True)
class Timeline:
    """Count the backwards and steps of one exam, and hold the loss scale and the running backward."""

    #: whether the exam is open; nothing is recorded while it is not
    open: bool = False
    backwards: int = 0
    steps: int = 0
    #: the current loss scale
    scale: float = 1.0
    running: RunningBackward | None = None

    def now(self) -> Moment:
        return Moment(self.backwards, self.steps, private.sequence_number())
