"""Define the codes of verdicts, which are findings about the training itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from tenterhook.record import Verdict

#: for each code, its title and the severity of its verdicts
CODES: dict[str, tuple[str, Literal["error", "warning"]]] = {
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
    "TH812": ("a parameter receives no gradient", "warning"),
    "TH813": ("a layer does not train, although similar layers do", "warning"),
    "TH814": ("gradient clipping is active in every step", "warning"),
    "TH815": ("the loss does not change", "warning"),
    "TH816": ("the loss scale collapses", "error"),
    "TH817": ("an update is out of proportion", "error"),
    "TH818": ("the gradient of one layer leaps", "error"),
}


def verdict(
    code: str,
    step: int,
    sentence: str,
    *,
    target: str = "",
    evidence: Iterable[str] = (),
    remedy: str,
    severity: Literal["error", "warning"] | None = None,
) -> Verdict:
    """Return a verdict. Unless it is given, the severity is that of the code."""
    return Verdict(code, severity or CODES[code][1], step, target, sentence, tuple(evidence), remedy)
