"""Compare the exams of all ranks through the process group's store, with a short timeout and without collectives."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.patch.recording import Recording

#: seconds that an exam waits for the exams of the other ranks
PATIENCE = 5.0


#: for each source line that opens exams, the index of the last exam that was compared
_compared: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class RankDiff:
    """A rank whose hooks differ from the hooks of this rank."""

    here: int
    by: int
    #: the source lines that registered hooks on the other rank
    lines: frozenset[str]
    #: for each source line, summaries of the parameters after the hooks of that line changed them
    drifts: dict[str, list[str]]


def compared(exam: Recording) -> RankDiff | None:
    """Return a rank whose hooks differ from those of this rank, or None if the ranks agree or cannot be compared."""
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
    """List the parameter changes made by all hooks from the line that registered `hook`."""
    line = line_of(hook)
    return [one.drift for one in hooks if one.drifted and line_of(one) == line]
