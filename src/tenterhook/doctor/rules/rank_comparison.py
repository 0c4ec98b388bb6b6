"""What another rank's exam has seen, compared through the store: no collective, and nobody waits for long."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.patch.recording import Recording

#: seconds that an exam waits for those of the other ranks
PATIENCE = 5.0


#: exams that were compared, by where they were opened
_compared: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class RankDiff:
    """This rank, and another whose hooks are others or did something else."""

    here: int
    by: int
    #: that registered hooks
    lines: frozenset[str]
    #: by line, what parameters were after its hooks had changed them
    drifts: dict[str, list[str]]


def compared(exam: Recording) -> RankDiff | None:
    """None if all ranks are alike, or if that cannot be told."""
    board = exam.events.spread.board
    if board is None or exam.failure is not None:
        return None
    number = _compared[exam.opened_at] = _compared.get(exam.opened_at, -1) + 1
    lines = sorted({line_of(hook) for hook in exam.hooks})
    drifts = {line_of(hook): drift_of(hook, exam.hooks) for hook in exam.hooks if hook.drifted}
    other = board.other(f"{exam.opened_at}/{number}", json.dumps([lines, drifts], sort_keys=True), PATIENCE)
    if other is None:
        return None
    lines, drifts = json.loads(other[1])
    return RankDiff(board.rank, other[0], frozenset(lines), drifts)


def line_of(hook: HookRecord) -> str:
    """The same on machines that keep the program elsewhere."""
    return f"{hook.kind} {os.path.basename(hook.caller.place)}"


def drift_of(hook: HookRecord, hooks: list[HookRecord]) -> list[str]:
    """List the drifts of all hooks of its line."""
    line = line_of(hook)
    return [one.drift for one in hooks if one.drifted and line_of(one) == line]
