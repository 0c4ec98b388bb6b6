"""Say in one sentence how a run is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from tenterhook.record import Verdict
from tenterhook.view.data.contents import Contents

Tone = Literal["healthy", "sick", "unknown"]


def sentence_of(
    contents: Contents,
    verdicts: Sequence[Verdict],
    findings: Sequence[dict[str, Any]],
    flights: Sequence[dict[str, Any]],
    *,
    live: bool,
    watched: bool,
) -> tuple[Tone, str]:
    """Return whether the run is healthy, and the sentence.

    Args:
        contents: What was recorded.
        verdicts: What went wrong in the training, the cause first.
        findings: What the doctor found about the hooks.
        flights: The reports of flight recorders.
        live: True while a process records the run.
        watched: True if the run folder has the verdicts of a training that has ended.
    """
    if verdicts:
        return "sick", verdicts[0].sentence
    if flights:
        return "sick", f"A flight report was written in step {flights[0]['step']:,}: {flights[0]['reason']}."
    grave = [one for one in findings if one.get("severity") != "note"]
    if grave:
        hook = f"Hook {grave[0]['hook']}: " if grave[0].get("hook") else ""
        return "sick", f"{hook}{grave[0].get('title', grave[0].get('code'))} ({grave[0].get('code')})."
    steps = f"steps {contents.written.first:,} to {contents.written.last:,}"
    if live:
        return "unknown", f"The training is running. So far, {steps} are recorded."
    if watched:
        return "healthy", f"Nothing went wrong in {steps}."
    return "unknown", f"There is no verdict, because nothing watched the training in {steps}."
