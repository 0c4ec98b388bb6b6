"""Test the sentence for each kind of difference, on runs that are written by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import tenterhook as th
from tenterhook.diff import compare
from tenterhook.diff.plan import diff_plan
from tenterhook.record import Batch, Row

SETUP = {"torch": "2.13.0", "device": "cpu", "ranks": 1, "sharded": False, "compiled": False, "dtype": "float32"}
LAYERS = [[".", "Model", []], ["second", "Linear", ["second.weight"]], ["first", "Linear", ["first.weight"]]]
#: what a step records: hook, target, name and value. The layer `second` runs first.
STEP = [
    ("input_bits", ".", "digest", 1.0),
    *((("weight_bits", f"{layer}.weight", "digest", 2.0)) for layer in ("first", "second")),
    *((("output_bits", layer, "digest", 3.0)) for layer in ("first", "second", ".")),
    *((("outputs", layer, "norm", 4.0)) for layer in ("first", "second", ".")),
    ("training", ".", "loss", 0.5),
    ("training", ".", "rate", 0.1),
    *((("grad_bits", f"{layer}.weight", "digest", 5.0)) for layer in ("first", "second")),
    *((("grads", f"{layer}.weight", "norm", 6.0)) for layer in ("first", "second")),
    *((("update_bits", f"{layer}.weight", "digest", 7.0)) for layer in ("first", "second")),
]
Changes = dict[tuple[int, str, str, str], float]


def write(folder: Path, changes: Changes | None = None, *, ranks: Iterable[int] = (0,), **setup: Any) -> Path:
    """Write a run of three steps. Some numbers are changed: step, hook, target and name."""
    store = th.Store(folder)
    for step in range(3):
        for rank in ranks:
            rows = []
            for hook, target, name, value in STEP:
                shared = not hook.startswith(("input", "output"))
                if rank == 0 or not shared:
                    key = (step, hook, target, name)
                    value = (changes or {}).get(key, value) if rank == max(ranks) or shared else value
                    rows.append(Row(step, rank, hook, target, name, value))
            store.write([Batch(step, rank, {}, rows)])
    store.keep("plan.json", diff_plan(3).to_json())
    store.keep("model.json", json.dumps({"tenterhook": 1, "setup": SETUP | setup, "layers": LAYERS}))
    store.close()
    return folder


BEFORE = "the input of the model, the weights that are trained and the outputs of earlier layers"


@pytest.mark.parametrize(
    ("hook", "target", "name", "kind", "sentence"),
    [
        ("input_bits", ".", "digest", "data", "is the input of the model in step 1. Check the data"),
        ("weight_bits", "first.weight", "digest", "weights", "is the parameter first.weight before the step in step 1"),
        ("output_bits", "first", "digest", "forward", "is the output of first in step 1, in bits that its norm does "
         f"not show. Everything that was recorded before it in this step is equal: {BEFORE}."),
        ("training", ".", "loss", "loss", "is the loss in step 1: 0.5 and 9. The outputs are equal, so the labels or "
         "the loss function differ."),
        ("grad_bits", "second.weight", "digest", "backward", "is the gradient of second.weight in step 1"),
        ("training", ".", "rate", "rate", "is the learning rate in step 1: 0.1 and 9. The gradients are equal."),
        ("update_bits", "first.weight", "digest", "update", "is the update of first.weight in step 1. The gradients "
         "are equal, so"),
    ],
)  # fmt: skip
def test_the_first_difference_is_named(
    tmp_path: Path, hook: str, target: str, name: str, kind: str, sentence: str
) -> None:
    found = compare(write(tmp_path / "a"), write(tmp_path / "b", {(1, hook, target, name): 9.0}))
    assert (found.equal, found.exact, found.step, found.kind) == (False, True, 1, kind)
    assert found.target == (None if kind in ("data", "loss", "rate") else target)
    assert found.sentence.startswith("The runs are identical up to step 0. The first difference ")
    assert sentence in found.sentence


def test_layers_are_compared_in_the_order_in_which_they_ran(tmp_path: Path) -> None:
    both = {(2, "output_bits", layer, "digest"): 9.0 for layer in ("first", "second", ".")}
    found = compare(write(tmp_path / "a"), write(tmp_path / "b", both))
    assert (found.target, found.others) == ("second", 2)
    grads = {(2, "grad_bits", f"{layer}.weight", "digest"): 9.0 for layer in ("first", "second")}
    found = compare(tmp_path / "a", write(tmp_path / "c", grads))
    assert (found.target, found.others) == ("first.weight", 1)


def test_equal_runs(tmp_path: Path) -> None:
    found = compare(write(tmp_path / "a"), write(tmp_path / "b"))
    assert found.sentence == f"The runs are identical in steps 0 to 2: {3 * 12} tensors and numbers are equal."
    assert (found.equal, found.exact, found.step) == (True, True, None)


def test_runs_with_another_setup_are_compared_by_statistics(tmp_path: Path) -> None:
    digests = {(1, "output_bits", "first", "digest"): 9.0, (1, "outputs", "first", "norm"): 4.0 + 1e-6}
    found = compare(write(tmp_path / "a"), write(tmp_path / "b", digests, compiled=True))
    assert (found.equal, found.exact) == (True, False)
    assert found.sentence.endswith(
        "apart from rounding: of 36 tensors and numbers, the largest relative difference is 2e-07. Bits are not "
        "compared, because the setups differ in compiled (False and True)."
    )
    digests[1, "outputs", "first", "norm"] = 4.1
    found = compare(tmp_path / "a", write(tmp_path / "c", digests, compiled=True))
    assert (found.equal, found.exact, found.step, found.target) == (False, False, 1, "first")
    assert found.relative == pytest.approx(0.1 / 4.1)
    assert compare(tmp_path / "a", tmp_path / "c", tolerance=0.05).equal


def test_a_number_that_is_not_finite_in_one_run_is_a_difference_for_any_tolerance(tmp_path: Path) -> None:
    nan = {(1, "outputs", "first", "norm"): math.nan}
    found = compare(write(tmp_path / "a"), write(tmp_path / "b", nan), tolerance=1e9)
    assert (found.equal, found.target) == (False, "first")
    assert "a value is not finite in only one run" in found.sentence
    assert compare(tmp_path / "b", write(tmp_path / "c", nan), tolerance=0.0).equal


def test_the_rank_of_a_difference_is_named(tmp_path: Path) -> None:
    changes = {(1, "output_bits", "first", "digest"): 9.0}
    found = compare(
        write_ranks(tmp_path / "a"),
        write_ranks(tmp_path / "b", changes),
    )
    assert (found.rank, found.target) == (1, "first")
    assert "is the output of first on rank 1 in step 1" in found.sentence


def write_ranks(folder: Path, changes: Changes | None = None, *, recorded: tuple[int, ...] = (0, 1)) -> Path:
    """Write a run of two ranks."""
    made = write(folder, changes, ranks=recorded)
    (folder / "model.json").write_text(json.dumps({"tenterhook": 1, "setup": SETUP | {"ranks": 2}, "layers": LAYERS}))
    return made


def test_outputs_that_no_rank_recorded_are_not_called_equal(tmp_path: Path) -> None:
    loss = {(1, "training", ".", "loss"): 9.0}
    one = write_ranks(tmp_path / "a", recorded=(0,))
    found = compare(one, write_ranks(tmp_path / "b", loss, recorded=(0,)))
    assert found.sentence.endswith("Only some ranks recorded their outputs, and these are equal.")


def test_runs_with_different_numbers_of_ranks_compare_what_is_equal_on_all_ranks(tmp_path: Path) -> None:
    local = {(0, "outputs", "first", "norm"): 99.0, (0, "training", ".", "loss"): 9.0}
    found = compare(write(tmp_path / "a", local), write_ranks(tmp_path / "b"))
    assert found.equal
    assert found.sentence.endswith("Inputs, outputs and losses are not compared, because the runs have 1 and 2 ranks.")
    other = {(1, "grads", "first.weight", "norm"): 6.5}
    assert compare(tmp_path / "a", write_ranks(tmp_path / "c", other)).target == "first.weight"


def test_runs_without_a_common_step_or_hook_cannot_be_compared(tmp_path: Path) -> None:
    one = write(tmp_path / "a")
    store = th.Store(tmp_path / "b")
    store.write([Batch(7, 0, {}, [Row(7, 0, "training", ".", "loss", 1.0)])])
    store.close()
    found = compare(one, tmp_path / "b")
    assert (found.equal, found.sentence) == (None, "The runs cannot be compared, because they have no step in common.")


def test_wrong_folders_are_refused(tmp_path: Path) -> None:
    one = write(tmp_path / "runs" / "a")
    with pytest.raises(th.StoreError, match="are the same run"):
        compare(one, tmp_path / "runs" / ".." / "runs" / "a")
    with pytest.raises(th.StoreError, match="does not exist"):
        compare(tmp_path / "none", one)
    write(tmp_path / "runs" / "b")
    with pytest.raises(th.StoreError, match="contains 2 runs"):
        compare(tmp_path / "runs", one)


def test_runs_without_digests_are_not_called_identical(tmp_path: Path) -> None:
    folders = []
    for name, last in (("a", 1.0), ("b", 1.0), ("c", 2.0)):
        store = th.Store(tmp_path / name)
        for step in range(2):
            rows = [Row(step, 0, "grads", "first.weight", "norm", last if step else 1.0)]
            store.write([Batch(step, 0, {}, rows)])
        store.keep("plan.json", diff_plan(3).to_json())
        store.keep("model.json", json.dumps({"tenterhook": 1, "setup": SETUP, "layers": LAYERS}))
        store.close()
        folders.append(tmp_path / name)
    equal = compare(folders[0], folders[1]).sentence
    assert equal == (
        "The runs recorded equal numbers in steps 0 to 1: 2 were compared. They recorded no digests, so their bits may "
        "differ."
    )
    assert compare(folders[0], folders[2]).sentence.startswith("The runs are equal up to step 0. ")


def test_a_gradient_that_only_one_run_has_is_a_difference(tmp_path: Path) -> None:
    one = write(tmp_path / "a")
    store = th.Store(tmp_path / "b")
    for step in range(3):
        rows = [
            Row(step, 0, hook, target, name, value)
            for hook, target, name, value in STEP
            if not (step == 1 and target == "first.weight" and hook.startswith("grad"))
        ]
        store.write([Batch(step, 0, {}, rows)])
    for name in ("model.json", "plan.json"):
        store.keep(name, (one / name).read_text())
    store.close()
    found = compare(one, tmp_path / "b")
    assert (found.step, found.kind, found.target, found.others) == (1, "backward", "first.weight", 0)
    assert "the gradient of first.weight in step 1, which only one of the runs has. " in found.sentence


def test_what_rounding_hides_is_named_too(tmp_path: Path) -> None:
    def rounded(step: int) -> Changes:
        return {(step, "grad_bits", "first.weight", "digest"): 9.0, (step, "grads", "first.weight", "norm"): 6.0 + 1e-7}

    rounding = rounded(0)
    found = compare(write(tmp_path / "a"), write(tmp_path / "b", rounding))
    assert (found.equal, found.step, found.target) == (False, 0, "first.weight")
    assert "If rounding is ignored: The runs are equal in steps 0 to 2, apart from rounding" in found.sentence
    larger = {(2, "output_bits", "first", "digest"): 9.0, (2, "outputs", "first", "norm"): 4.1}
    found = compare(tmp_path / "a", write(tmp_path / "c", rounding | larger))
    assert (found.step, found.target) == (0, "first.weight")
    assert (
        "If rounding is ignored: The runs are equal within rounding (2e-08) up to step 1. The first difference is the "
        "output of first in step 2, relative 0.02." in found.sentence
    )
    # Kernels that round differently each time do so from the first step on.
    assert "rounding" not in compare(tmp_path / "a", write(tmp_path / "d", rounded(1))).sentence


def test_what_only_one_of_two_plans_records_is_no_difference(tmp_path: Path) -> None:
    one = write(tmp_path / "a")
    store = th.Store(tmp_path / "b")
    for step in range(3):
        store.write([Batch(step, 0, {}, [Row(step, 0, *row) for row in STEP if row[1] != "first.weight"])])
    store.keep("model.json", (one / "model.json").read_text())
    store.keep("plan.json", diff_plan(30).to_json())
    store.close()
    assert compare(one, tmp_path / "b").equal


def test_the_own_parameters_of_a_container_come_last_in_a_backward_pass(tmp_path: Path) -> None:
    layers = [[".", "Model", ["position"]], *LAYERS[1:]]
    folders = []
    for name, gradient in (("a", 6.0), ("b", 6.5)):
        store = th.Store(tmp_path / name)
        targets = ("position", "first.weight", "second.weight")
        store.write([Batch(0, 0, {}, [Row(0, 0, "grads", target, "norm", gradient) for target in targets])])
        store.keep("plan.json", diff_plan(3).to_json())
        store.keep("model.json", json.dumps({"tenterhook": 1, "setup": SETUP, "layers": layers}))
        store.close()
        folders.append(tmp_path / name)
    found = compare(*folders)
    assert (found.target, found.others) == ("first.weight", 2)
    assert "Nothing before it was recorded in this step." in found.sentence


@pytest.mark.parametrize(
    ("hooks", "sentence"),
    [
        (["input_bits"], "The input of the model is equal."),
        (["weight_bits"], "The weights that are trained are equal."),
        (["input_bits", "weight_bits"], "The input of the model and the weights that are trained are equal."),
    ],
)
def test_what_was_recorded_before_a_gradient_is_named(tmp_path: Path, hooks: list[str], sentence: str) -> None:
    for name, gradient in (("a", 6.0), ("b", 6.5)):
        store = th.Store(tmp_path / name)
        rows = [row for row in STEP if row[0] in hooks] + [("grads", "first.weight", "norm", gradient)]
        store.write([Batch(0, 0, {}, [Row(0, 0, *row) for row in rows])])
        store.keep("plan.json", diff_plan(3).to_json())
        store.keep("model.json", json.dumps({"tenterhook": 1, "setup": SETUP, "layers": LAYERS}))
        store.close()
    assert f" {sentence}" in compare(tmp_path / "a", tmp_path / "b").sentence


def write_calls(folder: Path, calls: list[tuple[str, str, int, float, int]]) -> Path:
    """Write a run with one step, of digests: hook, target, call, digest, and the place of the call."""
    store = th.Store(folder)
    rows = [
        Row(0, 0, hook, target, name, value, call, 0)
        for hook, target, call, digest, order in calls
        for name, value in (("digest", digest), ("order", float(order)))
    ]
    store.write([Batch(0, 0, {}, rows)])
    store.keep("plan.json", diff_plan(3).to_json())
    store.keep("model.json", json.dumps({"tenterhook": 1, "setup": SETUP, "layers": LAYERS}))
    store.close()
    return folder


def test_the_first_call_that_differs_is_named(tmp_path: Path) -> None:
    # The module `first` runs before and after `second`, and differs only after it.
    calls = [
        ("output_bits", "first", 0, 1.0, 10),
        ("output_bits", "second", 0, 2.0, 11),
        ("output_bits", "first", 1, 3.0, 12),
    ]
    one = write_calls(tmp_path / "a", calls)
    both = [calls[0], (*calls[1][:3], 9.0, 11), (*calls[2][:3], 9.0, 12)]
    assert compare(one, write_calls(tmp_path / "b", both)).target == "second"
    found = compare(one, write_calls(tmp_path / "c", [calls[0], calls[1], (*calls[2][:3], 9.0, 12)]))
    assert found.target == "first"
    assert "is the output of first in call 2 of 2, in bits" not in found.sentence
    assert "is the output of first in call 2 of 2." in found.sentence


def test_two_batches_that_exchange_their_places_are_a_difference(tmp_path: Path) -> None:
    calls = [("input_bits", ".", 0, 1.0, 10), ("input_bits", ".", 1, 2.0, 12)]
    swapped = [(*calls[0][:3], 2.0, 10), (*calls[1][:3], 1.0, 12)]
    found = compare(write_calls(tmp_path / "a", calls), write_calls(tmp_path / "b", swapped))
    assert (found.kind, found.equal) == ("data", False)
    assert "is the input of the model in call 1 of 2." in found.sentence


def test_a_model_in_evaluation_mode_is_compared_with_one_in_training_mode(tmp_path: Path) -> None:
    calls = [("output_bits", "second", 0, 1.0, 10), ("output_bits", "first", 0, 2.0, 12)]
    evaluated = [("eval_output_bits", "second", 0, 1.0, 10), ("eval_output_bits", "first", 0, 9.0, 12)]
    one = write_calls(tmp_path / "a", calls)
    assert compare(one, write_calls(tmp_path / "b", evaluated)).target == "first"
    # An evaluation that only one run does is not compared, and does not change the numbers of the calls.
    between = [*evaluated, ("output_bits", "second", 1, 1.0, 13), ("output_bits", "first", 1, 2.0, 14)]
    assert compare(one, write_calls(tmp_path / "c", between)).equal


def test_the_rank_of_a_gradient_that_is_not_reduced_is_named(tmp_path: Path) -> None:
    folders = []
    for name, last in (("a", 5.0), ("b", 9.0)):
        store = th.Store(tmp_path / name)
        for rank, value in ((0, 5.0), (1, last)):
            store.write([Batch(0, rank, {}, [Row(0, rank, "grad_bits", "first.weight", "digest", value)])])
        store.keep("plan.json", diff_plan(3).to_json())
        store.keep("model.json", json.dumps({"tenterhook": 1, "setup": SETUP | {"ranks": 2}, "layers": LAYERS}))
        store.close()
        folders.append(tmp_path / name)
    found = compare(*folders)
    assert (found.rank, found.target) == (1, "first.weight")
    assert "is the gradient of first.weight on rank 1." in found.sentence


def test_runs_whose_steps_are_far_apart_are_compared_at_once(tmp_path: Path) -> None:
    def write_far(name: str, last: float) -> Path:
        store = th.Store(tmp_path / name, linger=0)
        for step, value in ((0, 1.0), (2**52, last)):
            store.write([Batch(step, 0, {}, [Row(step, 0, "training", ".", "loss", value)])])
        return tmp_path / name

    found = compare(write_far("one", 2.0), write_far("other", 3.0))
    assert (found.equal, found.step, found.kind) == (False, 2**52, "loss")
