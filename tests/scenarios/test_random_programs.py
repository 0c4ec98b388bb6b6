"""Run a slice of the random programs. `scripts/random` runs as many as you like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

import tenterhook as th
from tests.support.random_programs.execution import execute
from tests.support.random_programs.hooks import HookSpec
from tests.support.random_programs.model import ModelSpec
from tests.support.random_programs.operations import Op
from tests.support.random_programs.programs import Program, generate
from tests.support.random_programs.sides import OptimizerSpec
from tests.support.slices import sliced

TRAIN = Op("train", {"batch": 0, "via": "root", "zero": "none"})
Make = Callable[[HookSpec, list[tuple[str, float]]], th.Hook]


def failures(seeds: Sequence[int], compiled: str | None = None) -> list[str]:
    outcomes = [(seed, execute(generate(seed), compiled)) for seed in seeds]
    return [f"{o.kind} {seed}: {o.detail}" for seed, o in outcomes if o.kind in ("silent", "crash")]


@pytest.mark.parametrize("first", sliced(range(0, 200, 25), 2))
def test_eager_programs(first: int) -> None:
    assert failures(range(first, first + 25)) == []


@pytest.mark.compiled
def test_compiled_programs() -> None:
    assert failures(sliced(range(4), 2), "aot_eager") == []


# -- the oracle for compiled programs ---------------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize("via", ["root", "method"])
def test_reentrant_checkpoint_of_tied_weight(via: str) -> None:
    """Check that the oracle expects one gradient from compiled code, and two from code that is not compiled."""
    model = ModelSpec(blocks=("plain",), tied=True, checkpointed=0, reentrant=True)
    hooks = (HookSpec("h0", ("**",), "grad", "stats"), HookSpec("h1", ("**",), "grad", "clip_norm", 0.05))
    train = replace(TRAIN, args={**TRAIN.args, "via": via})
    outcome = execute(Program(model, hooks, OptimizerSpec(), (train, train)), "aot_eager")
    assert (outcome.kind, outcome.detail) == ("exact", "")


@pytest.mark.compiled
@pytest.mark.parametrize("reentrant", [True, False])
def test_parameter_frozen_before_a_compiled_checkpoint_is_recomputed(reentrant: bool) -> None:
    """Check that the oracle expects no CheckpointError from compiled code."""
    model = ModelSpec(blocks=("norm",), checkpointed=0, reentrant=reentrant)
    freeze = Op("freeze", {"what": "parameter", "which": 2})
    hooks = (HookSpec("h0", ("head.weight",), "grad", "scale", 0.5),)
    frozen = replace(TRAIN, before_backward=(freeze,))
    outcome = execute(Program(model, hooks, OptimizerSpec(), (TRAIN, frozen, TRAIN)), "aot_eager")
    assert (outcome.kind, outcome.detail) == ("exact", "")


@pytest.mark.compiled
def test_inductor_rounds_differently() -> None:
    """Run a program in which the gradients of a compiled model without hooks differ by 1.5e-5 in single precision."""
    program = generate(56)
    outcome = execute(replace(program, ops=program.ops[:4]), "inductor")
    assert (outcome.kind, outcome.detail) == ("exact", "")


def scales_slightly_more(spec: HookSpec, notes: list[tuple[str, float]]) -> th.Hook:
    return th.Hook(spec.id, on=list(spec.on), at=spec.at, do=th.scale(spec.number * (1 + 1e-6)))


def skips_the_second_step(spec: HookSpec, notes: list[tuple[str, float]]) -> th.Hook:
    return th.Hook(spec.id, on=list(spec.on), at=spec.at, do=lambda x, ctx: x if ctx.step == 1 else x * spec.number)


@pytest.mark.compiled
@pytest.mark.parametrize("wrong", [scales_slightly_more, skips_the_second_step])
def test_small_faults_with_inductor(wrong: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a small fault is not taken for rounding."""
    monkeypatch.setattr(HookSpec, "hook", wrong)
    hooks = (HookSpec("h0", ("head.weight",), "grad", "scale", 1.001),)
    outcome = execute(Program(generate(56).model, hooks, OptimizerSpec(), (TRAIN, TRAIN)), "inductor")
    assert (outcome.kind, outcome.about) == ("silent", "parameter")
