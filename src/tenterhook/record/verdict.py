"""Define a verdict: what went wrong in a training. A judge finds verdicts; the recorder writes them down."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal, Protocol

from tenterhook.drawing import BAD

#: the name of the rows with the numbers of every step, where other rows have the id of a hook
TRAINING = "training"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Store a finding about the training itself, with its evidence and remedy.

    Attributes:
        code: The code, such as `"TH801"`.
        severity: `"error"` if the training is broken, otherwise `"warning"`.
        step: The step in which the problem began.
        target: The module or parameter, or an empty text if the problem is not in one of them.
        sentence: What went wrong, where and why, in one or two sentences.
        evidence: The numbers on which the verdict is based.
        remedy: What to do.

    Example:
        >>> import tempfile
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> rig = th.flight(model, optimizer, tempfile.mkdtemp())
        >>> model(torch.tensor([[1.0, float("nan")]])).sum().backward()
        >>> optimizer.step()
        >>> verdict = rig.verdict()
        >>> verdict.code, verdict.step, verdict.target
        ('TH802', 0, 'input')
    """

    code: str
    severity: Literal["error", "warning"]
    step: int
    target: str
    sentence: str
    evidence: tuple[str, ...]
    remedy: str

    def __str__(self) -> str:
        lines = [f"{self.code} {self.severity}: {self.sentence}"]
        lines += [f"  evidence: {one}" for one in self.evidence]
        return "\n".join([*lines, f"  remedy:   {self.remedy}"])

    def _repr_html_(self) -> str:
        color = BAD if self.severity == "error" else "#b7791f"
        evidence = "".join(f"<li>{html.escape(one)}</li>" for one in self.evidence)
        return (
            f"<div style='border-left:4px solid {color};padding-left:8px;margin:4px 0'>"
            f"<b>{html.escape(self.code)}</b> {html.escape(self.sentence)}<ul>{evidence}</ul>"
            f"<div><b>remedy:</b> {html.escape(self.remedy)}</div></div>"
        )


class Judge(Protocol):
    """An object that watches a training and finds out what went wrong."""

    def verdicts(self) -> list[Verdict]:
        """Return what went wrong so far, the cause first."""

    def trip(self) -> str | None:
        """Return why the last step was examined, or None. The next call returns None."""

    def close(self) -> None:
        """Stop watching."""


def verdicts_json(verdicts: Iterable[Verdict]) -> str:
    """Return verdicts as the JSON text of the file in a run folder."""
    return json.dumps({"tenterhook": 1, "verdicts": [asdict(one) for one in verdicts]}, indent=1)
