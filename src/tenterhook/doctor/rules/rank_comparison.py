"""Compare the exams of all ranks through the process group's store, without a collective and with a short timeout."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.patch.recording import Recording

#: seconds that an exam waits for the exams of the other ranks
PATIENCE = 5.0


#: for each line that opens an exam, the index of its last compared exam
_compared: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class RankDiff:
    """Describe another rank whose hooks differ from this rank's hooks."""

    here: int
    by: int
    #: lines that registered hooks on the other rank
    lines: frozenset[str]
    #: for each line, a summary of each parameter that its hooks changed, taken after the change
    drifts: dict[str, list[str]]


def compared(exam: Recording) -> RankDiff | None:
    """Return how another rank differs from this one, or None if all ranks agree or cannot be compared."""
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
    """Return a name for the line that registered a hook, without the folder, which may differ between machines."""
    return f"{hook.kind} {os.path.basename(hook.caller.place)}"


def drift_of(hook: HookRecord, hooks: list[HookRecord]) -> list[str]:
    """List the changes to parameters by all hooks that the same line registered."""
    line = line_of(hook)
    return [one.drift for one in hooks if one.drifted and line_of(one) == line]
