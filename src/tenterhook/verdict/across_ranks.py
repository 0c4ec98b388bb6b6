"""Examine a step on all ranks together, so that every rank knows what one of them found."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace

from torch import nn

from tenterhook import ranks
from tenterhook.ranks import RankGroup
from tenterhook.rig.rerun.operation_watch import Origin
from tenterhook.rig.rerun.second_run import Rerun
from tenterhook.verdict.case import Examination

#: modules that communicate in their forward pass; a rank that fails would leave the others waiting
_COMMUNICATING = (nn.SyncBatchNorm,)


def why_not_on_ranks(model: nn.Module) -> str | None:
    """Return why a step of this model cannot run again on several ranks, or None if it can."""
    for name, module in model.named_modules():
        if isinstance(module, _COMMUNICATING):
            return f"{name!r} communicates with the other ranks"
    return None


def examine_on_all_ranks(
    group: RankGroup, step: int, reason: str, refusal: str | None, run: Callable[[], Rerun], loss: float | None
) -> Examination:
    """Run a step again on every rank, and exchange the results. Every rank must call this function.

    Args:
        group: The ranks that train the model.
        step: The number of the step.
        reason: Why the step is examined.
        refusal: Why the step cannot run again on this rank, or None if it can.
        run: Function that runs the step again.
        loss: The loss of this rank.

    Returns:
        The examination, which is the same on all ranks. It is the one of the lowest rank that found a bad value.
    """
    refusals = {by: text for by, text in ranks.distinct_texts(group, refusal or "").items() if text}
    found: Rerun | None = None
    error: str | None = None
    if not refusals:
        try:
            found = run()
        except Exception as met:
            error = f"running it again failed: {met!r}"
    told = {"found": asdict(found) if found else None, "error": error, "loss": loss}
    results = {by: json.loads(text) for by, text in ranks.distinct_texts(group, json.dumps(told)).items()}
    if refusals:
        by, why = min(refusals.items())
        return Examination(step, reason, None, f"on rank {by}, {why}")
    bad = {by: one["found"] for by, one in results.items() if one["found"] and one["found"]["origin"]}
    failed = {by: one["error"] for by, one in results.items() if one["error"]}
    if bad:
        # A bad parameter explains what other ranks found, because they receive its values.
        by = min(bad, key=lambda by: (bad[by]["origin"]["source"] != "parameter", by))
        one = bad[by]
        return Examination(step, reason, _rerun(one), None, rank=by)
    if failed:
        by, why = min(failed.items())
        return Examination(step, reason, None, f"on rank {by}, {why}")
    assert found is not None
    alike = all(one["found"]["reproduced"] for one in results.values())
    highest = max(results, key=lambda by: results[by]["loss"] or 0.0)
    return Examination(step, reason, replace(found, reproduced=alike), None, rank=highest)


def _rerun(told: dict[str, object]) -> Rerun:
    return Rerun(**{**told, "origin": Origin(**told["origin"])})  # type: ignore[arg-type]
