"""The rules name the cause in the right order, for the numbers of a run that are written by hand."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from tenterhook.rig.rerun.operation_watch import Origin
from tenterhook.rig.rerun.second_run import Rerun
from tenterhook.verdict.case import Case, Examination, Parameter
from tenterhook.verdict.history import GroupSettings, History, StepNumbers
from tenterhook.verdict.judge import judge
from tests.verdict.test_examiner import learnable, run

NAMES = [f"layers.{number}.weight" for number in range(6)]
Numbers = Callable[[int], list[float]]


def wave(step: int) -> float:
    """Return the noise of a step, between -1 and 1."""
    return math.sin(1.7 * step)


def healthy(step: int) -> list[float]:
    return [1.0 + 0.1 * wave(step + number) for number in range(len(NAMES))]


def case(
    steps: int = 100,
    *,
    loss: Callable[[int], float] = lambda step: 1.0 / (1.0 + step / 20) + 0.02 * wave(step),
    norms: Numbers = healthy,
    moved: Numbers = lambda step: [0.01 * one for one in healthy(step)],
    length: Callable[[int], float] = lambda step: 10.0,
    rate: Callable[[int], float] = lambda step: 0.1,
    exams: tuple[Examination, ...] = (),
    passes: int = 1,
) -> Case:
    history = History(NAMES)
    for step in range(steps):
        for _ in range(passes - 1):
            history.end_pass()
        weights = [length(step)] * len(NAMES) if step % 8 == 0 else None
        settings = (GroupSettings(rate(step)),)
        history.add(StepNumbers(step, list(norms(step)), settings, loss(step), list(moved(step)), weights))
    return Case(history, exams, [Parameter(name, 64, 2, True, True) for name in NAMES])


def codes(one: Case) -> list[tuple[str, str, int]]:
    return [(found.code, found.severity, found.step) for found in judge(one)]


def only(place: int, at: int, size: float, *, others: float = 0.01) -> Numbers:
    """Return how far the weights move, if one layer moves by `size` before a step, and the others by `others`."""
    usual = lambda number: size if number == place else others
    return lambda step: [(usual(number) if step == at else 0.01) * one for number, one in enumerate(healthy(step))]


def worse_from(at: int) -> Callable[[int], float]:
    return lambda step: 1.0 / (1.0 + step / 20) + 0.02 * wave(step) + (2.0 if step >= at else 0.0)


def wild(step: int) -> float:
    """Return a loss that does not fall."""
    return 2.0 + 0.3 * wave(step)


def errors(one: Case) -> list[tuple[str, int]]:
    return [(found.code, found.step) for found in judge(one) if found.severity == "error"]


def with_peak(at: int, height: float) -> Callable[[int], float]:
    return lambda step: height if step == at else 1.0 / (1.0 + step / 20) + 0.02 * wave(step)


def nonfinite(step: int) -> Examination:
    origin = Origin("forward", "layers.2", "div", "nan")
    return Examination(step, "the loss is not finite", Rerun(origin, True), None)


def test_a_healthy_run_has_no_verdict():
    assert codes(case()) == []


def test_a_bad_batch_that_recovered_does_not_explain_a_nan_much_later():
    found = codes(case(loss=with_peak(30, 9.0), exams=(nonfinite(80),)))
    assert found == [("TH801", "error", 80), ("TH808", "warning", 30)]


def test_a_bad_batch_explains_a_nan_soon_afterwards():
    found = codes(case(loss=with_peak(30, 9.0), exams=(nonfinite(36),)))
    assert found[0] == ("TH808", "error", 30)


def test_a_loss_that_is_still_huge_has_not_recovered():
    def loss(step: int) -> float:
        return 1e20 if step == 60 else 1e10 if step > 60 else 1.0 + 0.02 * wave(step)

    assert "TH808" not in [code for code, *_ in codes(case(loss=loss))]


def test_several_skipped_batches_are_not_one_batch():
    one = case(loss=with_peak(30, 9.0))
    one.history.skip(30, sure=True)
    assert ("TH808", "warning", 30) in codes(one)
    one.history.skip(30, sure=True)
    assert codes(one) == []


def test_momentum_after_a_large_gradient_is_not_out_of_proportion():
    def norms(step: int) -> list[float]:
        return [(30.0 if step == 50 else 1.0) * one for one in healthy(step)]

    def moved(step: int) -> list[float]:
        return [(0.1 if step in (51, 52, 53) else 0.01) * one for one in healthy(step)]

    def loss(step: int) -> float:
        return 1.0 / (1.0 + step / 20) + 0.02 * wave(step) + (2.0 if step > 51 else 0.0)

    assert "TH817" not in [code for code, *_ in codes(case(loss=loss, norms=norms, moved=moved))]
    assert ("TH817", "error", 50) in codes(case(loss=loss, moved=moved))


def test_an_earlier_leap_does_not_hide_the_harm_of_a_jump():
    early = Examination(40, "the loss is 0.5, and was 0.01 before", None, "refused")
    found = codes(case(rate=lambda step: 0.1 if step < 60 else 50.0, exams=(early, nonfinite(62))))
    assert found[0] == ("TH805", "error", 60)


def test_what_happens_later_does_not_explain_an_explosion():
    def norms(step: int) -> list[float]:
        return [(40.0 if number == 3 and step >= 60 else 1.0) * one for number, one in enumerate(healthy(step))]

    grown = lambda step: 10.0 * (1.0 + step / 4)
    assert errors(case(norms=norms, length=grown, loss=wild)) == [("TH806", 16), ("TH818", 60)]
    later = lambda step: 10.0 * (1.0 + max(0, step - 64))
    assert errors(case(norms=norms, length=later, loss=wild)) == [("TH818", 60)]


def test_weight_decay_after_an_explosion_is_not_the_cause():
    grown = lambda step: 10.0 if step == 0 else 100.0 * math.exp(-step / 40)
    one = case(length=grown, loss=wild, rate=lambda step: 0.1 if step == 0 else 3.0)
    for _, groups in list(one.history.settings)[1:]:
        one.history.settings[1] = (1, (GroupSettings(groups[0].rate, 0.01),))
    assert errors(one) == [("TH806", 8)]
    same, *_ = judge(case(length=grown, loss=wild))
    assert same.sentence.endswith("grew from 60 to 491.")


def test_an_explosion_explains_an_infinity_in_the_same_step():
    one = case(6, loss=wild, exams=(nonfinite(5),))
    assert codes(one) == [("TH801", "error", 5)]
    one.history.weigh(5, [50.0] * len(NAMES))
    assert codes(one) == [("TH806", "error", 5), ("TH801", "error", 5)]


def test_a_cliff_in_the_depth():
    def norms(step: int) -> list[float]:
        return [0.01, 0.9e-7, 1.1e-7, 1.0, 0.8, 1.2]  # the first one is tied to the head

    (found,) = judge(case(norms=norms))
    assert (found.code, found.target) == ("TH810", "layers.2.weight")
    assert "They fall most from 'layers.3.weight' to 'layers.2.weight'" in found.sentence


def test_weights_that_grow_at_once_explode():
    at_once = lambda step: 10.0 * min(6.0, 1.0 + step / 4)
    assert errors(case(length=at_once, loss=wild)) == [("TH806", 16)]
    assert errors(case(length=lambda step: 10.0 * (1.0 + step / 20), loss=wild)) == []
    assert codes(case(length=at_once)) == []  # the loss falls, so a small model only needs larger weights


def test_a_layer_that_moves_again_as_it_did_before():
    def moved(step: int) -> list[float]:
        rests = 20 <= step < 70  # as an expert that no token needs
        return [(1e-6 if number == 3 and rests else 0.01) * one for number, one in enumerate(healthy(step))]

    assert codes(case(moved=moved)) == []


def test_gradients_that_vanish_at_the_beginning():
    def norms(step: int) -> list[float]:
        scale = 0.1 + 0.7 * min(1.0, max(0.0, (step - 60) / 400))
        return [scale ** (len(NAMES) - number) * one for number, one in enumerate(healthy(step))]

    stuck = lambda step: 1.6 + 0.01 * wave(step) - max(0.0, (step - 70) / 400)
    found, *others = judge(case(500, loss=stuck, norms=norms))
    assert not others and found.code == "TH810"
    assert "at the beginning, those of the first layers are " in found.sentence
    assert codes(case(500, norms=norms)) == []  # the loss falls all the same


def test_a_leap_that_clipping_hides():
    def norms(step: int) -> list[float]:
        if step < 50:
            return healthy(step)
        return [3.0 if number == 2 else 1e-4 for number in range(len(NAMES))]

    assert codes(case(norms=norms)) == [("TH818", "error", 50)]


def test_a_gradient_that_grows_from_nearly_zero_is_not_a_leap():
    """Check the keys of attention: their gradients begin near zero, and the norm of all gradients stays the same."""

    def norms(step: int, most: float = 0.03) -> list[float]:
        small = most if step >= 50 else 1e-3
        return [small * one if number == 2 else one for number, one in enumerate(healthy(step))]

    assert codes(case(norms=norms)) == []
    assert codes(case(norms=lambda step: norms(step, 30.0))) == [("TH818", "error", 50)]


def test_other_weights_explain_other_gradients():
    def norms(step: int) -> list[float]:
        return [(40.0 if number == 3 and step >= 52 else 1.0) * one for number, one in enumerate(healthy(step))]

    def moved(step: int) -> list[float]:
        return [(50.0 if number == 4 and step == 50 else 0.01) * one for number, one in enumerate(healthy(step))]

    assert codes(case(norms=norms, moved=moved)) == [("TH807", "warning", 50)]


def test_an_optimizer_of_a_model_that_no_longer_exists(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "model = torch.nn.Linear(4, 1)\n"
        "optimizer = torch.optim.Adam(model.parameters())\n"
        "model = torch.nn.Linear(4, 1)\n"
        "for step in range(40):\n"
        "    optimizer.zero_grad()\n"
        "    model(torch.randn(8, 4)).square().mean().backward()\n"
        "    optimizer.step()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "tenterhook", "run", "--out", tmp_path / "run", script], capture_output=True, text=True
    )
    assert "TH812 warning: None of the parameters in Adam received a gradient in 40 steps, and no module" in done.stderr


def test_a_gradient_of_clipped_training_is_named():
    training = learnable()
    weight = training.model.get_parameter("2.weight")
    state = {"step": 0}
    weight.register_hook(lambda grad: grad * 1e4 if state["step"] >= 40 else grad)
    training.optimizer.register_step_pre_hook(
        lambda *_: nn.utils.clip_grad_norm_(training.model.parameters(), 4.0) and None
    )
    for group in training.optimizer.param_groups:
        group["lr"] = 1e-4
    found = run(training, change=lambda step: state.update(step=step)).verdicts()
    assert ("TH818", 40, "2.weight") in [(one.code, one.step, one.target) for one in found]
    assert torch.isfinite(weight).all()


def test_a_long_run_is_judged_quickly():
    # A schedule changes the settings in each step, and each leap is compared with the steps before it.

    def leaps(step: int) -> list[float]:
        return [50.0 if step % 70 == 0 else 1.0, *healthy(step)[1:]]

    long = case(20_000, norms=leaps, moved=leaps, rate=lambda step: 1e-3 * (2 + wave(step)))
    assert len(long.history.gradients.found) == len(long.history.movements.found) == 256
    begin = time.thread_time()
    judge(long)
    assert time.thread_time() - begin < 1.0  # it is about 0.1, and was 4 when each leap read all losses


def test_weights_that_grow_while_the_loss_leaps_explode():
    # A training that ends at the loss of a guess has not learnt, although its first loss was higher.
    losses = [3.0, 9.0, 12.0, 14.0, 7.0, 2.6, 3.6, 4.7]
    length = lambda step: 10.0 if step < 8 else 100.0
    exploded = case(80, loss=lambda step: losses[step] if step < 8 else 1.4 + 0.02 * wave(step), length=length)
    assert errors(exploded) == [("TH806", 8)]
    calm = case(80, loss=lambda step: 3.0 - 0.2 * step if step < 8 else 1.4 + 0.02 * wave(step), length=length)
    assert errors(calm) == []


def test_a_layer_that_was_overwritten_explains_larger_weights_soon_afterwards():
    soon, late = (lambda step: 10.0 if step < 52 else 120.0), (lambda step: 10.0 if step < 72 else 120.0)
    assert errors(case(loss=wild, length=soon)) == [("TH806", 56)]
    recovered = case(loss=wild, length=soon, moved=only(4, 50, 50.0))
    assert errors(recovered) == []
    assert codes(recovered)[0] == ("TH807", "warning", 50)
    assert errors(case(loss=wild, length=late, moved=only(4, 50, 50.0))) == [("TH806", 72)]


def test_a_scale_that_collapses_explains_a_loss_that_explodes():
    one = case(loss=lambda step: wild(step) * (1e12 if step >= 60 else 1.0))
    assert errors(one) == [("TH806", 60)]
    for _ in range(16):
        one.history.skip(60, sure=True)
    assert errors(one) == [("TH816", 60)]


def test_a_pass_that_is_not_a_part_of_an_accumulated_gradient_is_a_skipped_step():
    def skipped(one: Case) -> list[tuple[str, int]]:
        for _ in range(20):
            one.history.skip(60, sure=False)
        return errors(one)

    assert skipped(case()) == [("TH816", 60)]
    assert skipped(case(passes=4)) == []
    assert skipped(case(steps=5)) == []  # too few steps to know


def test_one_layer_that_moves_furthest_is_not_the_only_one():
    moved = only(4, 51, 3.0, others=0.2)
    assert codes(case(loss=worse_from(51), moved=moved)) == [("TH817", "error", 50)]
    assert codes(case(loss=worse_from(51), moved=only(4, 51, 3.0))) == [("TH807", "error", 51)]


def test_an_update_far_larger_than_a_large_gradient_before_it_is_out_of_proportion():
    def with_large(at: int) -> Numbers:
        return lambda step: [(8.0 if step == at else 1.0) * one for one in healthy(step)]

    moved = only(0, 51, 0.8, others=0.8)
    assert errors(case(loss=worse_from(51), norms=with_large(46), moved=moved)) == [("TH817", 50)]
    assert errors(case(loss=worse_from(51), norms=with_large(50), moved=moved)) == []
    slower = only(0, 51, 0.2, others=0.2)
    assert errors(case(loss=worse_from(51), norms=with_large(46), moved=slower)) == []


def test_a_learning_rate_that_jumped_explains_weights_that_move_far():
    jumped = lambda step: 0.1 if step < 50 else 50.0
    assert errors(case(loss=worse_from(51), moved=only(4, 53, 50.0), rate=jumped)) == [("TH805", 50)]
    # The weights moved before the step in which the learning rate jumped.
    assert errors(case(loss=worse_from(51), moved=only(4, 50, 50.0), rate=jumped)) == [("TH805", 50), ("TH807", 50)]


def test_a_batch_that_saturates_the_model():
    noisy = lambda step: 1.5 if step == 60 else 1.0 / (1.0 + step / 20) + 0.15 * wave(step)

    def with_last(last: float) -> Numbers:
        return lambda step: [*[1e-3] * 5, last] if step == 60 else healthy(step)

    assert codes(case(loss=noisy)) == []  # a batch that is only hard
    assert codes(case(loss=noisy, norms=with_last(0.9))) == [("TH808", "warning", 60)]
    assert codes(case(norms=with_last(0.9))) == []
    assert codes(case(loss=noisy, norms=with_last(9.0))) == []  # the program clips a large gradient


def test_a_loss_that_is_flat_apart_from_chance():
    def found(fall: float) -> int:
        count = 0
        for seed in range(30):
            noise = random.Random(seed)
            losses = [1.0 - fall * step / 150 + 0.15 * noise.gauss(0.0, 1.0) for step in range(150)]
            count += codes(case(150, loss=losses.__getitem__)) == [("TH815", "warning", 0)]
        return count

    assert found(0.0) >= 24
    assert found(0.25) <= 1
