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
    closed: bool,
) -> tuple[Tone, str]:
    """Return whether the run is healthy, and the sentence.

    Args:
        contents: What was recorded.
        verdicts: What went wrong in the training, the cause first.
        findings: What the doctor found about the hooks.
        flights: The reports of flight recorders.
        live: True while a process records the run.
        watched: True if the run folder has a list of verdicts, which may be empty.
        closed: True if the run folder has what is written when the training ends.
    """
    if verdicts:
        return "sick", verdicts[0].sentence
    stopped = next((one for one in flights if "KeyboardInterrupt" in one["reason"]), None)
    if stopped is not None:
        return "unknown", f"The training was stopped in step {stopped['step']:,} (KeyboardInterrupt)."
    if flights:
        return "sick", f"A flight report was written in step {flights[0]['step']:,}: {flights[0]['reason']}."
    grave = [one for one in findings if one.get("severity") != "note"]
    if grave:
        hook = f"Hook {grave[0]['hook']}: " if grave[0].get("hook") else ""
        return "sick", f"{hook}{grave[0].get('title', grave[0].get('code'))} ({grave[0].get('code')})."
    steps = f"steps {contents.written.first:,} to {contents.written.last:,}"
    if live:  # the page shows the last step, which grows
        return (
            "unknown",
            "The training is running. Nothing went wrong so far." if watched else "The training is running.",
        )
    if not closed:
        why = "its process was killed, or it did not detach the rig"
        return "unknown", f"The recording ends in step {contents.written.last:,} without a verdict: {why}."
    if watched:
        return "healthy", f"Nothing went wrong in {steps}."
    return "unknown", f"There is no verdict, because nothing watched the training in {steps}."
