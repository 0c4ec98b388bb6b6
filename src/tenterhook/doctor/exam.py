"""Implement `examine`: record what happens to hooks, and turn the recording into findings."""

from __future__ import annotations

from itertools import chain
from types import TracebackType
from typing import Any

from torch import nn

from tenterhook.doctor.child_exam import ChildExams
from tenterhook.doctor.diagnosis import diagnose, merged, of_a_hook, of_several_hooks, of_the_exam
from tenterhook.doctor.findings import Finding, Findings
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.patch.recording import Recording
from tenterhook.doctor.rules.moments.circumstances import LIKELY_MEANT
from tenterhook.text_table import TextTable


class Exam(Recording):
    """A context manager that watches raw PyTorch hooks in its block and diagnoses them when the block ends.

    `th.examine` creates an exam. Print the exam to see a table of all watched hooks and the findings.

    Args:
        model: A model whose existing hooks are also watched. Hooks that are registered inside the block are always
            watched, on any model.

    Attributes:
        findings: The findings of the exam, most severe first. Empty until the block has ended.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> linear = torch.nn.Linear(2, 1)
        >>> with th.Exam(linear) as exam:
        ...     handle = linear.weight.register_hook(lambda grad: grad * 0.5)
        ...     linear(torch.ones(1, 2)).sum().backward()
        >>> exam.hooks[0].fired, exam.findings.codes
        (1, [])
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        super().__init__(model)
        self.findings = Findings(())
        self.children = ChildExams(Exam)
        #: for each hook, its activity and its findings when a function of the program last returned
        self._earlier: dict[HookRecord, tuple[Any, list[Finding]]] = {}
        #: the findings of that moment that concern several hooks
        self._together: list[Finding] = []

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if not self.watches:
            return
        self._end(error, tb)
        try:
            gone = {
                hook: found
                for hook, (activity, found) in self._earlier.items()
                if not hook.owner.exists and hook.activity == activity
            }
            errors = self.events.errors
            diagnosed = errors.until_error(diagnose(self, gone, self._together))
            found = merged(chain(diagnosed, of_the_exam(self)))
            self.findings = Findings(sorted(found, key=lambda one: one.code in LIKELY_MEANT))
        finally:
            self._restore()

    def _look(self) -> None:
        if self.failure is None:
            present = (hook for hook in self.hooks if hook.owner.exists)
            self._earlier.update((hook, (hook.activity, list(of_a_hook(hook, self)))) for hook in present)
            self._together = list(of_several_hooks(self))

    def __str__(self) -> str:
        rows = [
            [
                hook.function,
                hook.kind,
                hook.owner.name,
                hook.caller.place,
                hook.fired,
                hook.returned,
                hook.changed,
                hook.reached if hook.owner.leaf else None,
                _fate(hook),
            ]
            for hook in self.hooks
        ]
        head = ("hook", "registered by", "on", "place", "fired", "returned", "changed", "reached a step", "now")
        return f"{TextTable('raw hooks', head, rows).text()}\n\n{self.findings!r}"


def examine(model: nn.Module | None = None) -> Exam:
    """Watch raw PyTorch hooks in a `with` block, and report why hooks did not fire or had no effect.

    The block should contain the code that registers the hooks and at least one training step. Hooks run as they would
    without the exam. When the block ends, even after an error, every patched PyTorch function is restored.

    Args:
        model: A model whose existing hooks are also watched. Without a model, only hooks that are registered inside the
            block are watched.

    Returns:
        An exam, to be used as a context manager. After the block, `exam.findings` holds the findings, and `exam.hooks`
        holds a record of each hook.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> linear = torch.nn.Linear(2, 1)
        >>> def halve(grad):
        ...     grad = grad * 0.5  # the return statement is missing
        >>> with th.examine(linear) as exam:
        ...     handle = linear.weight.register_hook(halve)
        ...     linear(torch.ones(1, 2)).sum().backward()
        >>> exam.findings.codes
        ['TH301']
    """
    return Exam(model)


def _fate(hook: HookRecord) -> str:
    if hook.removed is not None:
        return "removed"
    if not hook.alive:
        return "freed with its tensor" if hook.owner.now() is None else "deleted without its handle"
    return "registered"
