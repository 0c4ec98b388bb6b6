"""Tell of a verdict while the training runs: in the run folder, and to a function of the user."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tenterhook.record import Verdict
from tenterhook.record.containment import call_and_report

Alert = Callable[[Verdict], object]

#: number of steps between two looks, which becomes this part of all steps later, because a look takes longer then
EVERY, PART = 100, 0.05
#: seconds to wait for an alert that is still being sent at the end
WAIT = 10.0


class Alerts:
    """Calls functions with the first verdict whenever it is a new one. The training does not wait for the functions.

    Args:
        note: Function that writes the verdict into the run folder, or None.
        alert: Function of the user, or None.
        verdicts: Returns the verdicts, the cause first.
    """

    def __init__(self, note: Alert | None, alert: Alert | None, verdicts: Callable[[], list[Verdict]]) -> None:
        self._note = note
        self._alert = alert
        self._verdicts = verdicts
        self._sent: set[tuple[str, str]] = set()
        self._threads: list[threading.Thread] = []
        self._next = EVERY - 1

    def look_sometimes(self, step: int) -> None:
        """Look again if enough steps have passed since the last time.

        Without an alert, a look after each examination is enough, because a look takes time.
        """
        if self._alert is not None and step >= self._next:
            self._next = step + max(EVERY, int(PART * step))
            self.look()

    def look(self) -> None:
        """Send the first verdict, unless it was sent before."""
        for verdict in self._verdicts()[:1]:
            if (verdict.code, verdict.target) not in self._sent:
                self._sent.add((verdict.code, verdict.target))
                self._start("writing a verdict", self._note, verdict)
                self._start("sending an alert", self._alert, verdict)

    def _start(self, doing: str, act: Alert | None, verdict: Verdict) -> None:
        if act is not None:
            arguments = (doing, act, verdict)
            thread = threading.Thread(target=call_and_report, args=arguments, name="tenterhook: alert", daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """Wait for the alerts that are being sent."""
        for thread in self._threads:
            thread.join(WAIT)
