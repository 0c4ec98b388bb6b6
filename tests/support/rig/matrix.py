"""Compute the matrix: in every regime, a point has the same meaning, is refused, or does not depend on the regime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import tenterhook as th
from tenterhook.actions.definition import TENSOR_POINTS
from tenterhook.plan import POINTS
from tests.support.rig.by_hand import Hand, Recorded
from tests.support.rig.compiled import COMPILED
from tests.support.rig.regimes import REGIMES, Regime

COLUMNS = REGIMES | COMPILED

CHANGES: dict[str, Callable[[Tensor], Tensor] | None] = {"observe": None, "modify": lambda x: x * 0.5}

#: text of the refusal, by point and regime
REFUSED = {
    (point, "no optimizer"): "this point needs an optimizer, but none was passed"
    for point in ("grad_final", "update", "step_pre", "step_post")
}
REFUSED |= {(point, f"compiled: {regime}"): text for (point, regime), text in REFUSED.items()}
REFUSED |= {
    (point, regime): text
    for regime in COMPILED
    for point, text in {
        "grad_input": "the contribution of one call to the gradient of its input is not available",
        "value": "taps do not exist in compiled code",
        "value_grad": "taps do not exist in compiled code",
    }.items()
}

#: cells in which PyTorch itself provides no signal, so the hook is due 3 times and never fires, which is reported
NO_SIGNAL = {("grad_accumulated", "autograd.grad"), ("grad_accumulated", "compiled: autograd.grad")}

#: regimes that could affect a state_dict
_STATE = ("eager", "tied weights", "parameter replaced", "parameter swapped", "two optimizers", "no optimizer")
UNAFFECTED = {
    (point, regime): "a `state_dict` does not depend on how gradients are computed"
    for point in ("save_pre", "save_post", "load_pre", "load_post")
    for regime in COLUMNS
    if regime not in _STATE
}


@dataclass(frozen=True)
class Outcome:
    word: str
    #: number of signals that were compared, or the reason for the word
    note: str


def check(point: str, regime: str) -> Outcome:
    """Compute one cell, or fail."""
    if (point, regime) in UNAFFECTED:
        return Outcome("unaffected", UNAFFECTED[point, regime])
    if (point, regime) in REFUSED:
        return _refused(point, COLUMNS[regime](), REFUSED[point, regime])
    if (point, regime) in NO_SIGNAL:
        with pytest.warns(RuntimeWarning, match="TH702"):
            _exact(point, COLUMNS[regime], None)
        return Outcome("exact", "0 signals")
    compared = 0
    for change in CHANGES.values() if POINTS[point].modifies else (None,):
        compared += _exact(point, COLUMNS[regime], change)
    if point in TENSOR_POINTS:
        compared += _observed(point, COLUMNS[regime])
    assert compared, "nothing was compared"
    return Outcome("exact", f"{compared} signals")


def _exact(point: str, regime: type[Regime], change: Callable[[Tensor], Tensor] | None) -> int:
    by_hand, hand = _trained((regime.reference or regime)(), Hand(point, change))
    recorded = Recorded(point, change)
    by_plan, rig = _attached(regime(), recorded.hook(regime.prefix))
    _same(hand.seen, recorded.seen, close=regime.close)
    _same(by_hand, by_plan, close=regime.close)
    site = next(iter(rig.ledger["cell"].values()), None)
    fired = sum(s.fired for s in rig.ledger["cell"].values())
    assert fired == len(recorded.seen), "the ledger must count every firing, and only firings"
    assert rig.ledger["cell"].changed == (len(recorded.seen) if change else 0)
    assert site is None or site.failed == 0
    return len(hand.seen)


def _observed(point: str, regime: type[Regime]) -> int:
    """Check that a registered observer receives the same signals and leaves the run the same, bit for bit.

    A handwritten hook may change the last bits of the run.
    """
    bare, _ = _trained(regime(), Hand(None))
    by_hand, hand = _trained((regime.reference or regime)(), Hand(point))
    recorded = Recorded(point, None)
    hook, registry = recorded.named(regime.prefix)
    by_plan, rig = _attached(regime(), hook, actions=registry)
    _same(bare, by_plan, close=regime.close)
    if _equal(bare, by_hand):
        _same(hand.seen, recorded.seen)
    else:  # the handwritten hook's alias changed the order of autograd's sums, so the runs differ in the last bits
        torch.testing.assert_close(recorded.seen, hand.seen, rtol=1e-4, atol=1e-6)
    assert rig.ledger["cell"].fired == len(hand.seen)
    return len(hand.seen)


def _equal(a: Any, b: Any) -> bool:
    try:
        _same(a, b)
    except AssertionError:
        return False
    return True


def _refused(point: str, regime: Regime, text: str) -> Outcome:
    model = regime.wrapped(regime.model())
    with pytest.raises(th.RefusedError) as refusal:
        th.attach(model, [Recorded(point, None).hook(regime.prefix)], optimizer=regime.optimizers(model))
    assert text in str(refusal.value)
    assert (refusal.value.hook, refusal.value.point) == ("cell", point)
    assert not th.inventory(model)
    return Outcome("refused", text)


def _trained(regime: Regime, hand: Hand) -> tuple[dict[str, Any], Hand]:
    model = regime.wrapped(regime.model())
    optimizers = regime.optimizers(model)
    regime.train(model, optimizers, hand)
    return _bits(model, optimizers), hand


def _attached(regime: Regime, hook: th.Hook, **options: Any) -> tuple[dict[str, Any], th.Rig]:
    model = regime.wrapped(regime.model())
    optimizers = regime.optimizers(model)
    rig = th.attach(model, hook, optimizer=optimizers, **options)
    regime.train(model, optimizers, Hand(None))
    bits = _bits(model, optimizers)
    rig.detach()
    assert not th.inventory(model, optimizer=optimizers)
    return bits, rig


def _bits(model: torch.nn.Module, optimizers: dict[str, torch.optim.Optimizer]) -> dict[str, Any]:
    model = getattr(model, "_orig_mod", model)
    found: dict[str, Any] = dict(model.state_dict())
    found.update({f"{n}.grad": p.grad for n, p in model.named_parameters()})
    for name, optimizer in optimizers.items():
        for i, state in optimizer.state_dict()["state"].items():
            found.update({f"{name}.{i}.{k}": v for k, v in state.items()})
    return found


def _same(a: Any, b: Any, *, close: float = 0.0) -> None:
    if isinstance(a, Tensor):
        assert isinstance(b, Tensor)
        assert a.dtype == b.dtype and a.shape == b.shape
        if close:
            torch.testing.assert_close(a, b, rtol=close, atol=close, equal_nan=True)
        else:
            assert torch.equal(torch.nan_to_num(a, nan=12345.0), torch.nan_to_num(b, nan=12345.0)), (a, b)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            _same(a[key], b[key], close=close)
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), f"{len(a)} signals by hand, {len(b)} by tenterhook"
        for x, y in zip(a, b, strict=True):
            _same(x, y, close=close)
    else:
        assert a == b


MARKS = {"exact": "exact", "refused": "**refused**", "unaffected": "–"}


def row(regime: str, outcomes: dict[tuple[str, str], Outcome]) -> str:
    return f"| {regime} | " + " | ".join(MARKS[outcomes[p, regime].word] for p in POINTS) + " |"


def _rows(regimes: dict[str, type[Regime]], outcomes: dict[tuple[str, str], Outcome]) -> list[str]:
    counts = {w: sum(o.word == w for o in outcomes.values()) for w in MARKS}
    lines = [
        f"{len(outcomes)} cells: {counts['exact']} exact, {counts['refused']} refused, "
        f"{counts['unaffected']} unaffected, 0 silent, 0 skipped.",
        "",
        "| regime | " + " | ".join(f"`{p}`" for p in POINTS) + " |",
        "|---" * (len(POINTS) + 1) + "|",
        *(row(regime, outcomes) for regime in regimes),
    ]
    notes = {o.word: set() for o in outcomes.values()}
    for o in outcomes.values():
        notes[o.word].add(o.note)
    for word in ("refused", "unaffected"):
        lines += ["", f"Reasons for *{word}* cells: {'; '.join(sorted(notes.get(word, ())))}."]
    return lines


def table(outcomes: dict[tuple[str, str], Outcome]) -> str:
    """Write the first part of docs/matrix.md."""
    lines = [
        "# The matrix: same point, same meaning",
        "",
        *INTRODUCTION.splitlines(),
        "",
        *_rows(REGIMES, outcomes),
    ]
    return "\n".join(lines) + "\n"


INTRODUCTION = """\
`scripts/matrix` runs every cell of these tables and writes this page. Each row is a *regime*: one way to train a
model. Each column is a point.

- *exact*: the hook gives the same result as a handwritten hook in plain PyTorch. All signals, parameters, gradients and
  optimizer states are equal bit for bit, both for observers and for modifiers. With a registered observer, the run
  also equals a run without hooks, bit for bit.
- *refused*: `attach` raises an error that gives the reason.
- – (*unaffected*): a declared rule states that the point does not depend on the regime.

A *silent* cell would mean a wrong result without an error."""

COMPILED_INTRODUCTION = """\
In this table, *exact* means that all signals, parameters, gradients and optimizer states equal those of a handwritten
hook in plain PyTorch that runs without the compiler. They are equal bit for bit with aot_eager. With inductor, whose
kernels add numbers in a different order, they are equal within 1e-5. In every row, compiled code calls the hooked
module. All rows except the first two use `fullgraph=True`. The rows that begin with `compiled:` are the regimes of the
first table, compiled as one graph with aot_eager."""


def compiled_table(outcomes: dict[tuple[str, str], Outcome]) -> str:
    lines = [
        "",
        "## Compiled",
        "",
        *COMPILED_INTRODUCTION.splitlines(),
        "",
        *_rows(COMPILED, outcomes),
    ]
    return "\n".join(lines) + "\n"
