"""Shrink a program that fails to a small one that fails in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from tests.support.random_programs.execution import Outcome, execute
from tests.support.random_programs.hooks import OBSERVERS, HookSpec
from tests.support.random_programs.model import ModelSpec
from tests.support.random_programs.operations import Op
from tests.support.random_programs.programs import Program
from tests.support.random_programs.sides import OptimizerSpec

#: the simplest value of each argument
SIMPLE: dict[str, Any] = {
    "via": "root",
    "zero": "none",
    "refit": "exchange",
    "times": 1,
    "batch": 0,
    "mode": "eval",
    "keep": False,
}


def shrink(program: Program, compiled: str | None = None) -> tuple[Program, Outcome]:
    """Return the smallest program found whose outcome has the same kind and is about the same, and its outcome."""
    outcome = execute(program, compiled)
    wanted = (outcome.kind, outcome.about)
    if outcome.kind == "exact":
        return program, outcome
    if len(outcome.operations) <= len(program.ops):
        program = replace(program, ops=program.ops[: len(outcome.operations)], detach=False)
    again = True
    while again:
        again = False
        for smaller in smaller_programs(program):
            try:
                found = execute(smaller, compiled)
            except Exception:  # a program that makes no sense any more, for example without parameters
                continue
            if (found.kind, found.about) == wanted:
                program, outcome, again = smaller, found, True
                break
    return program, outcome


def smaller_programs(program: Program) -> Iterator[Program]:
    """Yield programs that are a little smaller, the most promising ones first."""
    ops, hooks = program.ops, program.hooks
    for size in (8, 4, 2, 1):
        for start in range(len(ops) - size, -1, -1):
            yield replace(program, ops=ops[:start] + ops[start + size :])
    if program.detach:
        yield replace(program, detach=False)
    for i in range(len(hooks) if len(hooks) > 1 else 0):
        yield replace(program, hooks=hooks[:i] + hooks[i + 1 :])
    for optimizers in simpler_optimizers(program.optimizers):
        yield replace(program, optimizers=optimizers)
    for model in simpler_models(program.model):
        yield replace(program, model=model)
    for i, op in enumerate(ops):
        for simpler in simpler_ops(op):
            yield replace(program, ops=(*ops[:i], simpler, *ops[i + 1 :]))
    for i, hook in enumerate(hooks):
        for simpler_hook in simpler_hooks(hook):
            yield replace(program, hooks=(*hooks[:i], simpler_hook, *hooks[i + 1 :]))


def simpler_ops(op: Op) -> Iterator[Op]:
    """Yield simpler operations of the same name, or a plain step instead of a special one."""
    if op.before_backward or op.before_step:
        yield replace(op, before_backward=(), before_step=())
    if op.name in ("train inside except", "train frozen once", "accumulate"):
        yield Op("train", {name: op.args[name] for name in ("batch", "via", "zero")})
    for name, value in op.args.items():
        if name in SIMPLE and value != SIMPLE[name] and not (name == "zero" and op.name == "zero_grad"):
            yield replace(op, args={**op.args, name: SIMPLE[name]})


def simpler_hooks(hook: HookSpec) -> Iterator[HookSpec]:
    """Yield hooks with a simpler action at the same point."""
    if hook.observes:
        if hook.do == "capture":
            yield replace(hook, do="stats")
    elif (hook.do, hook.number) != ("scale", 0.5):
        yield replace(hook, do="scale", number=0.5)
    if hook.do in OBSERVERS and hook.at in ("grad_accumulated",):
        yield replace(hook, at="grad")


def simpler_optimizers(spec: OptimizerSpec) -> Iterator[OptimizerSpec]:
    """Yield simpler optimizers."""
    if len(spec.kinds) > 1:
        yield replace(spec, kinds=spec.kinds[:1])
    if spec.left_out is not None:
        yield replace(spec, left_out=None)
    if any(kind != "sgd" for kind in spec.kinds):
        yield replace(spec, kinds=("sgd",) * len(spec.kinds))


def simpler_models(spec: ModelSpec) -> Iterator[ModelSpec]:
    """Yield simpler models."""
    for field in fields(spec):
        if field.name not in ("blocks", "seed", "reentrant", "dtype") and getattr(spec, field.name) != field.default:
            more = {"reentrant": False} if field.name == "checkpointed" else {}
            yield replace(spec, **{field.name: field.default}, **more)
    if spec.reentrant:
        yield replace(spec, reentrant=False)
    for i in range(len(spec.blocks) if len(spec.blocks) > 1 else 0):
        yield replace(spec, blocks=spec.blocks[:i] + spec.blocks[i + 1 :])
    if any(kind != "plain" for kind in spec.blocks):
        yield replace(spec, blocks=("plain",) * len(spec.blocks))


# -- groups of failures -----------------------------------------------------------------------------------------------


def signature(program: Program, outcome: Outcome) -> str:
    """Return a short text that is the same for failures that probably have the same cause."""
    extras = [text for text, holds in (
        ("two optimizers", len(program.optimizers.kinds) > 1), ("left out", program.optimizers.left_out),
        ("shared", program.model.shared), ("tied", program.model.tied), ("reentrant", program.model.reentrant),
        ("checkpoint", program.model.checkpointed is not None and not program.model.reentrant),
        ("detach", program.detach),
    ) if holds]  # fmt: skip
    steps = " > ".join(brief(op) for op in program.ops)
    return f"{outcome.kind} | {', '.join(extras)} | {steps}" if extras else f"{outcome.kind} | {steps}"


def points(program: Program, outcome: Outcome) -> str:
    """Return the points of the hooks, and what differed."""
    hooks = sorted({f"{'observer' if hook.observes else 'modifier'} at {hook.at}" for hook in program.hooks})
    return f"{' and '.join(hooks)} ({outcome.about})"


def brief(op: Op) -> str:
    """Return the name of an operation with the arguments that are not the simplest ones."""
    words = [str(op.args[name]) for name in SIMPLE
             if name != "batch" and name in op.args and op.args[name] != SIMPLE[name]]  # fmt: skip
    text = f"{op.name}({', '.join(words)})" if words else op.name
    for events, moment in ((op.before_backward, "before backward"), (op.before_step, "before step")):
        if events:
            text += f"[{moment}: {'; '.join(map(brief, events))}]"
    return text
