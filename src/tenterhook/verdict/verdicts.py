"""Define the codes of verdicts, which are findings about the training itself, and the class that stores one."""

from __future__ import annotations

from dataclasses import dataclass

from tenterhook.audit.imbalance import Severity

#: for each code, its title and the severity of its verdicts
CODES: dict[str, tuple[str, Severity]] = {
    "TH801": ("a module produced the first value that is not finite", "error"),
    "TH802": ("the data contain a value that is not finite", "error"),
    "TH803": ("the loss produced the first value that is not finite", "error"),
    "TH804": ("the optimizer produced the first value that is not finite", "error"),
    "TH805": ("the learning rate jumped", "error"),
    "TH806": ("the training explodes", "error"),
    "TH807": ("the weights of one layer changed suddenly", "error"),
    "TH808": ("one batch differs from the others", "warning"),
    "TH809": ("weight decay shrinks the weights", "error"),
    "TH810": ("gradients vanish along the depth", "warning"),
    "TH811": ("a layer is dead", "warning"),
    "TH812": ("a parameter never receives a gradient", "warning"),
    "TH813": ("a layer does not train, although similar layers do", "warning"),
    "TH814": ("gradient clipping is active in every step", "warning"),
    "TH815": ("the loss does not change", "warning"),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Store a finding about the training, with its evidence and remedy.

    Attributes:
        code: The code, such as `"TH801"`.
        step: The step in which the problem began.
        target: The module or parameter, or an empty text if the problem is not in one of them.
        sentence: What went wrong, where and why, in one or two sentences.
        evidence: The numbers on which the verdict is based.
        remedy: What to do.
    """

    code: str
    step: int
    target: str
    sentence: str
    evidence: tuple[str, ...]
    remedy: str

    @property
    def title(self) -> str:
        """Return the title of the code."""
        return CODES[self.code][0]

    @property
    def severity(self) -> Severity:
        """Return "error", "warning" or "note"."""
        return CODES[self.code][1]

    def __str__(self) -> str:
        lines = [f"{self.code} {self.severity}: {self.sentence}"]
        lines += [f"  evidence: {one}" for one in self.evidence]
        return "\n".join([*lines, f"  remedy:   {self.remedy}"])
