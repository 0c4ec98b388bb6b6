"""Count the backward passes and steps in an exam, so that observations can be ordered in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from tenterhook import torch_internals as private
from tenterhook.doctor.observe.hook_owner import HookLabel
from tenterhook.doctor.observe.values.changed_part import ChangedPart, nodes_of
from tenterhook.doctor.observe.values.stored import Pass, Stored

#: the maximum number of stored values to look at again
MOST_STORED = 256


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    """A point in time, which is identified by four counters."""

    #: the number of backward passes and the number of steps before this moment
    backwards: int
    steps: int
    #: the sequence number that autograd will give to the next node
    sequence: int
    #: the number of outermost calls of a model before this moment
    passes: int = 0


@dataclass(frozen=True, slots=True)
class RunningBackward:
    """The backward pass that is running."""

    #: how the program started the backward pass: `backward`, `backward(inputs=...)` or `autograd.grad`
    entry: str
    create_graph: bool
    #: the place in the code that started it
    place: str = ""
    #: True if the loss is a mean
    mean: bool = False
    #: the number of parts if the loss was divided by a whole number, as for the accumulation of gradients; otherwise 1
    parts: int = 1


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
    #: the outermost call of a model that is running
    within: Pass | None = None
    #: the number of outermost calls of a model so far
    passes: int = 0
    #: by class: the number of calls of models without hooks
    others: Counter[type] = field(default_factory=Counter)
    #: True if the program or PyTorch has set hooks on saved tensors, which reading a node would call
    saved_by_hooks: bool = False
    #: the parts of outputs that forward hooks have changed since the last backward pass
    parts: list[ChangedPart] = field(default_factory=list)
    #: by number: hooks that have stored a value without its graph since the last backward pass
    detaching: dict[int, Callable[[bool, Collection[int]], None]] = field(default_factory=dict)
    #: by hook: its steps of an optimizer in the backward passes of a part of a loss, by the number of parts
    steps_of_parts: dict[HookLabel, Counter[int]] = field(default_factory=dict)
    #: values that hooks stored and that may still be changed in place
    stored: list[Stored] = field(default_factory=list)

    def look_at_stored(self) -> None:
        """Look which values that hooks stored have been changed in place."""
        for one in self.stored:
            one.look()
        self.stored = [one for one in self.stored if one.tensor is not None and one.tensor() is not None][-MOST_STORED:]

    def compare_parts(self, nodes: Iterable[Any]) -> None:
        """Look which of the changed parts the graph of a loss uses."""
        used = nodes_of(nodes)
        for part in self.parts:
            part.compare(used)
        self.parts.clear()

    def note_terms(self, constant: bool, leaves: Collection[int]) -> None:
        """Tell the hooks that have stored a value without its graph about the graph of a loss.

        Args:
            constant: True if the loss is a sum with a term that has no graph.
            leaves: The ids of the parameters that the graph reaches.
        """
        for note in self.detaching.values():
            note(constant, leaves)

    def note_inner_step(self, firing: HookLabel | None) -> None:
        """Note a step inside a backward pass, made by the hook that is running."""
        if firing is not None and self.running is not None and self.running.parts > 1:
            self.steps_of_parts.setdefault(firing, Counter())[self.running.parts] += 1

    @property
    def current_pass(self) -> Pass | None:
        """Return the pass that is running."""
        return Pass(-self.backwards, "backward") if self.running is not None else self.within

    def now(self) -> Moment:
        return Moment(self.backwards, self.steps, private.sequence_number(), self.passes)
