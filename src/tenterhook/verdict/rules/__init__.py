"""The rules that find out what went wrong. Each of them looks at the numbers of a run and yields verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tenterhook.record import Verdict
from tenterhook.verdict.case import Case
from tenterhook.verdict.rules.constant import clipped_always, flat_loss, no_update
from tenterhook.verdict.rules.growth import explosion, growing_weights
from tenterhook.verdict.rules.leaps import one_batch, one_gradient
from tenterhook.verdict.rules.nonfinite import nonfinite
from tenterhook.verdict.rules.scaler import scale_collapse
from tenterhook.verdict.rules.settings import learning_rate, weight_decay
from tenterhook.verdict.rules.untrained import dead_layers, left_behind, never_reached, vanished_early, vanishing
from tenterhook.verdict.rules.updates import one_layer, out_of_proportion

Rule = Callable[[Case], Iterator[Verdict]]

#: the rules; of two verdicts about the same step, the one of the earlier rule is the cause
RULES: tuple[Rule, ...] = (
    learning_rate,
    weight_decay,
    one_layer,
    out_of_proportion,
    one_batch,
    one_gradient,
    growing_weights,
    nonfinite,
    scale_collapse,
    explosion,
    no_update,
    dead_layers,
    never_reached,
    left_behind,
    vanishing,
    vanished_early,
    clipped_always,
    flat_loss,
)
