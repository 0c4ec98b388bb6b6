"""Compute the matrix of transitions: what a hook does after the model, its optimizers or the program have changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.random_programs.execution import execute
from tests.support.random_programs.hooks import MODULE, PARAMETER, HookSpec
from tests.support.random_programs.model import ModelSpec
from tests.support.random_programs.operations import Op
from tests.support.random_programs.programs import Program
from tests.support.random_programs.sides import OptimizerSpec

#: how the program computes the loss, and the words for it in the table
WAYS = {"root": "root called", "method": "root not called"}

POINTS = (*MODULE, *PARAMETER)

#: the operations of a transition in a program that computes the loss in one of the ways
Transition = Callable[[str], list[Op]]

BLOCK = {"seed": 7, "refit": "add"}
WEIGHT = {"what": "parameter", "which": 0}


def _train(via: str, name: str = "train", *, zero: str = "none", **more: object) -> Op:
    """Return a training step of any kind."""
    events = {key: (more.pop(key),) for key in ("before_backward", "before_step") if key in more}
    return Op(name, {"batch": 3, "via": via, "zero": zero, **more}, **events)


def _freeze(what: str = "parameter") -> Op:
    return Op("freeze", {**WEIGHT, "what": what})


def _unfreeze() -> Op:
    return Op("unfreeze", {"what": "module", "which": 0})


TRANSITIONS: dict[str, Transition] = {
    "frozen for one step": lambda via: [_freeze(), _train(via), _unfreeze()],
    "frozen for two steps": lambda via: [_freeze("module"), _train(via), _train(via), _unfreeze()],
    "frozen between forward and backward": lambda via: [_train(via, before_backward=_freeze()), _unfreeze()],
    "frozen between backward and step": lambda via: [_train(via, before_step=_freeze()), _unfreeze()],
    "unfrozen between forward and backward": lambda via: [
        _freeze(), _train(via), _train(via, before_backward=_unfreeze())],
    "unfrozen between backward and step": lambda via: [_freeze(), _train(via), _train(via, before_step=_unfreeze())],
    "block added at the end": lambda via: [Op("add block", {"where": "end", "kind": "tanh", **BLOCK})],
    "block inserted": lambda via: [Op("add block", {"where": "start", "kind": "norm", **BLOCK})],
    "block deleted": lambda via: [Op("delete block", {"which": 0, "refit": "exchange"})],
    "parameter group added later": lambda via: [
        Op("add block", {"where": "end", "kind": "plain", "seed": 7, "refit": "none"}), _train(via), Op("add group")],
    "parameter group added before the step": lambda via: [
        Op("add block", {"where": "end", "kind": "plain", "seed": 7, "refit": "none"}),
        _train(via, before_step=Op("add group"))],
    "child rebuilt": lambda via: [
        Op("replace module", {"what": "linear", "which": 0, "seed": 7, "refit": "exchange", "times": 1})],
    "child rebuilt twice": lambda via: [
        Op("replace module", {"what": "any", "which": 0, "seed": 7, "refit": "exchange", "times": 2})],
    "parameter replaced": lambda via: [
        Op("replace parameter", {"which": 0, "seed": 7, "refit": "exchange", "times": 1})],
    "parameter replaced twice": lambda via: [
        Op("replace parameter", {"which": 0, "seed": 7, "refit": "rebuild", "times": 2})],
    "state loaded with assign=True": lambda via: [Op("load assign", {"refit": "exchange"})],
    "parameter swapped": lambda via: [Op("swap", {"which": 0, "seed": 7})],
    "weights tied": lambda via: [Op("tie", {"which": 0, "other": 1, "refit": "exchange"})],
    "weights tied, then untied": lambda via: [
        Op("tie", {"which": 0, "other": 1, "refit": "exchange"}), _train(via),
        Op("untie", {"which": 0, "refit": "exchange"})],
    "optimizer replaced": lambda via: [Op("new optimizer", {"which": 0, "kind": "momentum", "keep": False})],
    "second optimizer for the same parameters": lambda via: [
        Op("new optimizer", {"which": 0, "kind": "momentum", "keep": True})],
    "optimizer in a wrapper": lambda via: [Op("wrap optimizers")],
    "sharpness-aware step": lambda via: [_train(via, "sharpness-aware step")],
    "step skipped, gradients set to None": lambda via: [_train(via, "accumulate"), Op("zero_grad", {"zero": "none"})],
    "step skipped, gradients set to zero": lambda via: [
        _train(via, "accumulate"), Op("zero_grad", {"zero": "zeros"}), _train(via, zero="keep")],
    "gradients accumulated": lambda via: [_train(via, "accumulate"), _train(via, zero="keep")],
    "step without a pass": lambda via: [Op("step")],
    "error in forward": lambda via: [_train(via, "fail in forward", which=1)],
    "interrupt in forward": lambda via: [_train(via, "fail in forward", which=1, interrupted=True)],
    "error in backward": lambda via: [_train(via, "fail in backward", which=1)],
    "step inside an except block": lambda via: [_train(via, "train inside except")],
    "evaluation mode, then steps": lambda via: [Op("eval")],
    "evaluated without gradients": lambda via: [_train(via, "evaluate", mode="eval")],
    "copy of the model trained": lambda via: [_train(via, "train a copy")],
    "called through a wrapper": lambda via: [_train("wrapper"), _train(via)],
    "called in another way": lambda via: [_train("root" if via == "method" else "method")],
    "muted for a step": lambda via: [Op("mute", {"id": "h"}), _train(via), Op("unmute", {"id": "h"})],
    "compiled later": lambda via: [Op("compile")],
}  # fmt: skip

#: the models; in the second one, a checkpoint recomputes a block
MODELS = (
    ModelSpec("list", ("norm", "tanh", "tanh"), shared=False, tied=False, checkpointed=None, reentrant=False,
              input_grad=True, seed=1),
    ModelSpec("list", ("tanh", "norm"), shared=False, tied=False, checkpointed=0, reentrant=False,
              input_grad=True, seed=2),
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """The outcome of a transition at a point: a word, the number of programs, and what was reported."""

    word: str
    programs: int
    notes: tuple[str, ...] = ()


def programs(transition: str, point: str, via: str) -> list[Program]:
    """Return the programs of a cell: for each model, hooks that observe and modify everything, or one block."""
    ops = (_train(via), *TRANSITIONS[transition](via), _train(via), _train(via))
    everything, block = ("**",), ("blocks.0",) if point in MODULE else ("blocks.0.**",)
    actions = ["stats", "note"] if point == "update" else ["stats", "scale"]
    models = MODELS[:1] if transition == "compiled later" else MODELS
    return [
        Program(model, (HookSpec("h", on, point, do, 0.5),), OptimizerSpec(("sgd",)), ops, detach=False)
        for model in models
        for on in (everything, block)
        for do in actions
    ]


def check(transition: str, point: str, via: str) -> Cell:
    """Compute one cell. It is silent if one of its programs is."""
    outcomes = [execute(program) for program in programs(transition, point, via)]
    kinds = {outcome.kind for outcome in outcomes}
    word = next(kind for kind in ("crash", "silent", "reported", "exact") if kind in kinds)
    notes = {outcome.detail if outcome.kind in ("silent", "crash") else outcome.report for outcome in outcomes}
    return Cell(word, len(outcomes), tuple(sorted(notes - {""})))


INTRODUCTION = """\
Each row of this table is a *transition*: a change of the model, its optimizers or the program after the first step. A
second row has the same transition in a program that never calls the root, such as `model.loss(x)`. Each cell runs
programs with hooks that observe and hooks that modify, on everything or on one block, with and without a checkpoint.
After each operation, parameters, gradients, values, functions and the number of steps are compared with a copy of the
model whose gradients and outputs are changed by hand.

- *exact*: no comparison differs in any program of the cell.
- *reported*: a program differs, and before or in that step a warning names the hook and the reason.

`scripts/random` runs random sequences of the same operations."""

MARKS = {"exact": "exact", "reported": "**reported**"}


def row_name(transition: str, via: str) -> str:
    """Return the first cell of a row."""
    return transition if via == "root" else f"{transition}; {WAYS[via]}"


def mark_of(cell: Cell) -> str:
    """Return what the table shows for a cell."""
    return MARKS.get(cell.word, "**silent**")


def row(transition: str, via: str, cells: dict[tuple[str, str, str], Cell]) -> str:
    """Write one row of the table."""
    marks = [mark_of(cells[transition, point, via]) for point in POINTS]
    return f"| {row_name(transition, via)} | " + " | ".join(marks) + " |"


def section(cells: dict[tuple[str, str, str], Cell]) -> str:
    """Write the part of docs/matrix.md about transitions."""
    counts = Counter(cell.word for cell in cells.values())
    silent = counts["silent"] + counts["crash"]
    total = sum(cell.programs for cell in cells.values())
    lines = [
        "",
        "## Transitions",
        "",
        *INTRODUCTION.splitlines(),
        "",
        f"{len(TRANSITIONS)} transitions, {len(cells)} cells, {total} programs: {counts['exact']} cells exact, "
        f"{counts['reported']} reported, {silent} silent.",
        "",
        "| transition | " + " | ".join(f"`{point}`" for point in POINTS) + " |",
        "|---" * (len(POINTS) + 1) + "|",
        *(row(transition, via, cells) for transition in TRANSITIONS for via in WAYS),
    ]
    return "\n".join(lines) + "\n"
