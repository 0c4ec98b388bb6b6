"""Count the backward passes and steps in an exam, so that observations can be ordered in time."""

from __future__ import annotations

from dataclasses import dataclass

from tenterhook import torch_internals as private


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time, which is identified by three counters."""

    #: the number of backward passes and the number of steps before this moment
    backwards: int
    steps: int
    #: the sequence number that autograd will give to the next node
    sequence: int


@dataclass(frozen=True, slots=True)
class RunningBackward:
    """The backward pass that is running."""

    #: how the program started the backward pass: `backward`, `backward(inputs=...)` or `autograd.grad`
    entry: str
    create_graph: bool


@dataclass(slots=True)
class Timeline:
    """A counter of the backward passes and steps in one exam. It also tracks the loss scale and the current pass."""

    #: True while the exam is open; nothing is recorded while the exam is closed
    open: bool = False
    backwards: int = 0
    steps: int = 0
    #: the current loss scale
    scale: float = 1.0
    running: RunningBackward | None = None

    def now(self) -> Moment:
        return Moment(self.backwards, self.steps, private.sequence_number())
