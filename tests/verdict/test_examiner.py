"""An examiner watches a training without changing it, and finds the cause of a leap."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import tenterhook as th
from tenterhook.rig.step.outer_step import OuterStep
from tenterhook.verdict import examiner as examiner_module
from tenterhook.verdict.examiner import Examiner
from tests.support.verdict.families import FAMILIES, Training, build, numbers
from tests.verdict.test_rerun import state


@pytest.mark.parametrize("name", FAMILIES)
def test_a_healthy_training_is_not_examined_and_not_changed(name: str):
    bare, watched = build(name), build(name)
    for step in range(16):
        bare.step(step)
    torch.manual_seed(0)
    watched = build(name)
    examiner = Examiner(watched.model, [watched.optimizer])
    for step in range(16):
        watched.step(step)
    assert examiner.examinations == []
    assert not [one for one in examiner.verdicts() if one.severity == "error"]
    examiner.close()
    for one, other in zip(state(bare), state(watched), strict=True):
        assert torch.equal(one, other)


def learnable(seed: int = 0) -> Training:
    """Return a small regression that learns."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def loss(step: int) -> Tensor:
        x = numbers(step, 32, 8)
        return functional.mse_loss(model(x), x[:, :1] - x[:, 1:2])

    return Training(model, optimizer, loss)


def run(training: Training, steps: int = 60, change: Callable[[int], None] | None = None) -> Examiner:
    examiner = Examiner(training.model, [training.optimizer])
    for step in range(steps):
        if change is not None:
            change(step)
        training.step(step)
    examiner.close()
    return examiner


def test_a_training_that_learns_has_no_verdict():
    assert run(learnable(), 120).verdicts() == []


def test_a_learning_rate_that_jumps():
    training = learnable()

    def change(step: int) -> None:
        if step == 30:
            training.optimizer.param_groups[0]["lr"] = 50.0

    found = run(training, change=change).verdicts()
    assert (found[0].code, found[0].step) == ("TH805", 30)
    assert found[0].sentence.startswith(
        "Step 30: the learning rate jumped from 0.05 to 50, 1000 times the value before. The loss or the gradients"
    )


def test_a_restarted_schedule_is_not_a_jump():
    training = learnable()

    def change(step: int) -> None:
        training.optimizer.param_groups[0]["lr"] = 0.05 * (1 - step % 20 / 20) + 1e-6

    assert run(training, 80, change).verdicts() == []


def test_weights_that_change_suddenly():
    training = learnable()

    @torch.no_grad()
    def change(step: int) -> None:
        if step == 30:
            training.model.get_parameter("4.weight").mul_(100.0)

    found = run(training, change=change).verdicts()
    assert (found[0].code, found[0].step, found[0].target) == ("TH807", 30, "4.weight")


def test_a_batch_that_differs():
    training = learnable()
    usual = training.loss
    training.loss = lambda step: (
        usual(step)
        if step != 40
        else functional.mse_loss(training.model(numbers(step, 32, 8)), torch.full((32, 1), 200.0)) * 1.0
    )
    for group in training.optimizer.param_groups:
        group["lr"] = 1e-4
    found = run(training).verdicts()
    assert [(one.code, one.step) for one in found if one.code != "TH815"] == [("TH808", 40)]


def test_weight_decay_that_shrinks_the_weights():
    training = learnable()
    training.optimizer.param_groups[0]["weight_decay"] = 1.0
    assert run(training).verdicts()[0].code == "TH809"


def test_clipping_in_every_step():
    training = learnable()
    training.optimizer.register_step_pre_hook(
        lambda *_: torch.nn.utils.clip_grad_norm_(training.model.parameters(), 1e-3) and None
    )
    assert "TH814" in [one.code for one in run(training).verdicts()]


def test_a_parameter_without_gradient():
    training = learnable()
    training.model.register_module("spare", nn.Linear(2, 2))
    training.optimizer.add_param_group({"params": training.model.get_submodule("spare").parameters()})
    training.loss = lambda step: functional.mse_loss(training.model[:5](numbers(step, 32, 8)), torch.zeros(32, 1))
    (found,) = [one for one in run(training).verdicts() if one.code == "TH812"]
    assert found.target == "spare.weight"


def test_a_layer_that_was_left_out():
    training = build("gpt")
    training.model.get_submodule("h.1").requires_grad_(False)
    (found,) = [one for one in run(training).verdicts() if one.code == "TH813"]
    assert found.target.startswith("h.1.")


# -- the examiner beside other things --------------------------------------------------------------------------------


def test_a_rig_does_not_notice_that_a_step_runs_again(monkeypatch: pytest.MonkeyPatch):
    def ledger(*, examined: bool) -> tuple[dict[str, int], list[str], dict[str, dict[str, float]]]:
        training = build("gpt")
        rig = th.watch(training.model, training.optimizer)
        if examined:
            monkeypatch.setattr(examiner_module.LeapDetector, "look", lambda *_: "asked for")
            examiner = Examiner(training.model, [training.optimizer])
        for step in range(6):
            training.step(step)
        if examined:
            assert len(examiner.examinations) == 6
            assert all(one.found is not None and one.found.reproduced for one in examiner.examinations)
            examiner.close()
        found = [str(one) for one in th.check(rig)]
        return {id: one.fired for id, one in rig.ledger.items()}, found, rig.values("grads")

    assert ledger(examined=False) == ledger(examined=True)


def test_a_hook_that_changes_the_forward_pass_is_a_reason_not_to_run_a_step_again():
    training = learnable()
    th.hook(training.model, lambda y: y * 2, on="0", at="output")
    training.step(0)
    usual = training.loss
    training.loss = lambda step: usual(step) * (torch.nan if step == 3 else 1.0)
    (exam,) = run(training, 4).examinations
    assert exam.refusal is not None
    assert "changes the forward pass" in exam.refusal


def test_steps_of_the_last_of_two_optimizers_are_counted():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in model]
    examiner = Examiner(model, optimizers)
    for step in range(5):
        for optimizer in optimizers:
            optimizer.zero_grad()
            (model(torch.ones(2, 4)).mean() * (torch.nan if step == 3 and optimizer is optimizers[1] else 1)).backward()
            optimizer.step()
    examiner.close()
    assert (examiner.step, examiner.history.steps) == (5, 5)
    assert (examiner.verdicts()[0].code, examiner.verdicts()[0].step) == ("TH803", 3)


def test_a_step_that_calls_the_step_of_its_class_is_counted_once():
    class Again(torch.optim.SGD):
        def step(self, closure: object = None) -> None:
            super().step(closure)

    training = learnable()
    training.optimizer = Again(training.model.parameters(), lr=0.05)
    assert run(training, 7).step == 7


def test_a_copy_of_the_model_is_not_watched():
    training = learnable()
    examiner = Examiner(training.model, [training.optimizer])
    twin = copy.deepcopy(training.model)
    pickle.loads(pickle.dumps(training.model))(numbers(0, 2, 8))
    twin(numbers(0, 2, 8)).sum().backward()
    assert examiner._log.calls == []
    examiner.close()
    assert not training.model._forward_hooks
    assert not training.model._forward_pre_hooks


def test_a_model_is_freed_without_the_garbage_collector():
    training = learnable()
    examiner = Examiner(training.model, [training.optimizer])
    training.step(0)
    model = weakref.ref(training.model)
    gc.disable()
    try:
        del training
        assert model() is None
    finally:
        gc.enable()
    examiner.close()


def test_nothing_is_left_of_a_closed_examiner():
    original = torch.autograd.backward
    training = learnable()
    examiner = Examiner(training.model, [training.optimizer])
    assert torch.autograd.backward is not original
    examiner.close()
    assert torch.autograd.backward is original


class Twice(torch.optim.SGD):
    """An optimizer whose step calls the step of its class, so torch runs its hooks twice."""

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        return super().step(closure)


def test_a_nested_step_counts_once_and_a_failed_one_does_not_hide_the_next():
    model = nn.Linear(8, 1)
    optimizer = Twice(model.parameters(), lr=0.01)
    examiner = Examiner(model, [optimizer])
    for step in range(6):
        optimizer.zero_grad()
        model(numbers(step, 4, 8)).sum().backward()
        if step == 2:
            handle = optimizer.register_step_pre_hook(lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                optimizer.step()
            handle.remove()
        else:
            optimizer.step()
    assert [one.step for one in examiner.history.recent] == [0, 1, 2, 2, 3, 4]
    assert examiner.step == 5
    examiner.close()


def test_a_new_frame_is_not_taken_for_that_of_a_failed_step():
    frame = lambda: sys._getframe()
    outer = OuterStep()
    assert outer.begin(frame())
    for _ in range(1000):  # the memory of the first frame would be used again
        assert not outer.is_running(frame())


def test_numbers_that_are_read_late_are_the_same_and_no_step_runs_again():
    found = {}
    for trip in ("now", "late"):
        training = learnable()
        usual = training.loss
        training.loss = lambda step, usual=usual: usual(step) * (float("nan") if step == 30 else 1.0)
        examiner = Examiner(training.model, [training.optimizer], trip=trip)
        for step in range(31):
            training.step(step)
        examiner.close()
        found[trip] = examiner
    now, late = found["now"], found["late"]
    assert [one.norms for one in late.history.recent][:30] == [one.norms for one in now.history.recent][:30]
    assert list(late.history.losses)[:30] == list(now.history.losses)[:30]
    assert [(one.step, one.reason) for one in late.examinations] == [(30, "the loss is not finite")]
    assert [one.found for one in late.examinations] == [None] and now.examinations[0].found is not None
    assert late.verdicts()[0].step == 30
    assert 'is unknown, because trip="late" reads the numbers of a step one step later' in str(late.verdicts()[0])


def test_a_parameter_that_replaces_another_takes_its_place():
    training = learnable()
    head = training.model[4]

    def replace(step: int) -> None:
        if step == 10:
            group = training.optimizer.param_groups[0]
            new = {id(one): nn.Parameter(one.detach().clone()) for one in head.parameters()}
            group["params"] = [new.get(id(one), one) for one in group["params"]]
            head.weight, head.bias = new[id(head.weight)], new[id(head.bias)]

    examiner = run(training, change=replace)
    assert examiner.verdicts() == []
    assert examiner.history.names == [name for name, _ in training.model.named_parameters()]
    assert [one.count for one in examiner.history.arrived] == [60] * 6


def test_the_loss_of_a_skipped_step_is_forgotten():
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)  # too large for float16, so the first steps are skipped
    examiner = Examiner(model, [optimizer])
    for number in range(30):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = (model(torch.ones(2, 4)).float() - 1.0 - number).square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if examiner.step == 1:
            break
    examiner.close()
    assert number > 2
    assert examiner.history.skipped_passes == {0: number}
    assert examiner.history.losses.get(0) == pytest.approx(loss.item())
