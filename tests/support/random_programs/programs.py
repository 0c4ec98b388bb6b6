"""Generate random programs. A program is plain data, so that it can be printed and shrunk."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, replace

import torch

from tests.support.earlier_torch import is_before
from tests.support.random_programs.hooks import HookSpec, targets_of
from tests.support.random_programs.model import ModelSpec, Net
from tests.support.random_programs.operations import Op
from tests.support.random_programs.sides import OptimizerSpec

SELECTORS_OF_MODULES = (
    ("**",), ("blocks.*",), ("blocks.**",), ("blocks.0",), ("**.fc",), ("**.act",), ("head",), ("shared",), ("block*",),
    ("type:Linear",), ("type:Block",), ("type:LayerNorm",), (".",), ("**", "!head"), ("head", "blocks.*"),
)  # fmt: skip
SELECTORS_OF_PARAMETERS = (
    ("**",), ("**.weight",), ("**.bias",), ("head.weight",), ("head.*",), ("blocks.**",), ("blocks.0.**",),
    ("shared.**",), ("block*.**",), ("type:Linear",), ("type:LayerNorm",), ("**", "!**.bias"),
    ("**.fc.weight", "head.bias"),
)  # fmt: skip

#: the operations and how often each one is drawn
WEIGHTS = {
    "train": 30, "accumulate": 5, "step": 2, "train inside except": 2, "sharpness-aware step": 2,
    "train frozen once": 3, "evaluate": 3, "forward only": 2, "fail in forward": 3, "fail in backward": 2,
    "zero_grad": 2, "freeze": 4, "unfreeze": 4, "eval": 1, "train mode": 1, "mute": 2, "unmute": 2,
    "replace module": 5, "replace parameter": 4, "swap": 2, "load assign": 2, "add block": 4, "delete block": 2,
    "tie": 2, "untie": 2, "add group": 1, "new optimizer": 1, "wrap optimizers": 1, "train a copy": 2,
    "collect garbage": 1,
}  # fmt: skip
#: how many times more often an operation is drawn if the caller asks for it
OFTEN = 10
#: the operations that may run between the forward pass, the backward pass and the step
EVENTS = ("freeze", "unfreeze", "add group", "mute", "collect garbage")
#: the operations that freeze or unfreeze parameters
FREEZING = ("freeze", "unfreeze", "train frozen once")
#: the backends that run PyTorch's own kernels
OWN_KERNELS = ("eager", "aot_eager")


@dataclass(frozen=True)
class Program:
    """A program: a model, its hooks, its optimizers, the operations, and whether the rig is detached at the end."""

    model: ModelSpec
    hooks: tuple[HookSpec, ...]
    optimizers: OptimizerSpec
    ops: tuple[Op, ...]
    detach: bool = True

    @property
    def sums(self) -> bool:
        """Return True if a hook adds up several gradients. The order of such sums is not specified."""
        return any(hook.do == "clip_total" for hook in self.hooks)

    def __str__(self) -> str:
        lines = [f"model: {self.model}", f"optimizer: {self.optimizers}", *map(str, self.hooks)]
        lines += [f"  {i}. {op}" for i, op in enumerate(self.ops, 1)]
        return "\n".join([*lines, "  then detach, train()"] if self.detach else lines)

    def without(self, names: frozenset[str]) -> Program:
        """Return the program without some operations, also between the parts of a step.

        The name "method" stands for passes that do not call the root, and the name "none" for operations that do not
        give new parameters to the optimizer.
        """
        return replace(self, ops=tuple(_without(op, names) for op in self.ops if op.name not in names))

    def for_compiler(self, backend: str) -> Program:
        """Return the program without what compiled code refuses or leaves open.

        `grad_input` is refused. Compiled code computes gradients in an order of its own, so it is not known which ones
        have arrived when a backward pass fails. Generated kernels round differently, and a layer norm of nearly equal
        values amplifies the difference. In single precision, it may be as large as a small fault, so models that run
        generated kernels have double precision. Before torch 2.12, a parameter that was frozen when the model was
        compiled has no gradient after it is unfrozen, also without hooks.
        """
        hooks = tuple(replace(hook, at="grad_output") if hook.at == "grad_input" else hook for hook in self.hooks)
        dtype = torch.float32 if backend in OWN_KERNELS and not self.sums else torch.float64
        program = replace(self, hooks=hooks, model=replace(self.model, dtype=dtype))
        return program.without(frozenset(("fail in backward", *(FREEZING if is_before(12) else ()))))


def _without(op: Op, names: frozenset[str]) -> Op:
    args = dict(op.args)
    if "method" in names and "via" in args:
        args["via"] = "root"
    if "none" in names and args.get("refit") == "none":
        args["refit"] = "rebuild"
    return Op(
        op.name,
        args,
        before_backward=tuple(event for event in op.before_backward if event.name not in names),
        before_step=tuple(event for event in op.before_step if event.name not in names),
    )


def draw_model(rng: random.Random) -> ModelSpec:
    """Draw a model."""
    blocks = tuple(rng.choice(("plain", "tanh", "norm")) for _ in range(rng.randint(2, 4)))
    checkpointed = rng.choice((None, None, 0, 1))
    return ModelSpec(
        container=rng.choice(("list", "list", "sequential", "attributes")),
        blocks=blocks,
        shared=rng.random() < 0.3,
        tied=rng.random() < 0.2,
        checkpointed=checkpointed,
        reentrant=checkpointed is not None and rng.random() < 0.5,
        input_grad=rng.random() < 0.3,
        seed=rng.randrange(1000),
    )


def draw_hook(rng: random.Random, id: str, model: Net, optimizers: int) -> HookSpec | None:
    """Draw a hook. Return None if it selects nothing in the model."""
    at = rng.choice(("input", "output", "grad_output", "grad_input", "grad", "grad", "grad_accumulated",
                     "grad_final", "grad_final", "grad_final", "update"))  # fmt: skip
    module = at in ("input", "output", "grad_output", "grad_input")
    on = rng.choice(SELECTORS_OF_MODULES if module else SELECTORS_OF_PARAMETERS)
    actions = ["stats", "stats", "capture"]
    if at not in ("input", "output"):
        actions.append("note")
    if at != "update":
        actions += ["scale", "clip_value", "clip_norm", "shift", "by_step"]
    if at == "grad_final" and optimizers == 1:
        actions.append("clip_total")
    do = rng.choice(actions)
    numbers = {"scale": rng.choice((0.5, 1.5, -1.0)), "clip_value": 0.02, "clip_norm": 0.05, "clip_total": 0.1}
    if at in ("input", "output"):
        numbers |= {"clip_value": 0.5, "clip_norm": 1.0}
    hook = HookSpec(id, on, at, do, numbers.get(do, 0.0))
    exact = [pattern for pattern in on if "*" not in pattern and ":" not in pattern]
    if any(not targets_of(replace(hook, on=(pattern,)), model) for pattern in exact):
        return None  # an exact name that does not exist is refused
    return hook if targets_of(hook, model) else None


def draw_op(rng: random.Random, name: str, ids: list[str], often: frozenset[str] = frozenset()) -> Op:
    """Draw the arguments of an operation."""
    number, seed = rng.randrange(60), rng.randrange(1000, 100_000)
    ways = ("root", *("method",) * 3) if "method" in often else ("root",) * 5 + ("method",) * 2 + ("wrapper",)
    passing = {"batch": rng.randrange(64), "via": rng.choice(ways)}
    zero = rng.choice(("none", "none", "none", "zeros", "model", "keep"))
    refit = rng.choice(("exchange", "exchange", "add", "rebuild", "none"))
    freezing = {"what": rng.choice(("parameter", "module")), "which": number}
    arguments: dict[str, dict[str, object]] = {
        "train": {**passing, "zero": zero},
        "accumulate": {**passing, "zero": rng.choice(("keep", "none"))},
        "train inside except": {**passing, "zero": "none"},
        "sharpness-aware step": {**passing, "zero": rng.choice(("none", "zeros"))},
        "train frozen once": {**passing, "zero": zero, **freezing},
        "evaluate": {**passing, "mode": rng.choice(("train", "eval"))},
        "forward only": passing,
        "fail in forward": {**passing, "which": number, "interrupted": seed % 3 == 0},
        "fail in backward": {**passing, "zero": zero, "which": number},
        "zero_grad": {"zero": rng.choice(("none", "zeros", "model"))},
        "freeze": freezing,
        "unfreeze": freezing,
        "mute": {"id": rng.choice(ids)},
        "unmute": {"id": rng.choice(ids)},
        "replace module": {"what": rng.choice(("any", "linear")), "which": number, "seed": seed, "refit": refit,
                           "times": rng.choice((1, 1, 2))},
        "replace parameter": {"which": number, "seed": seed, "refit": refit, "times": rng.choice((1, 1, 2))},
        "swap": {"which": number, "seed": seed},
        "load assign": {"refit": rng.choice(("exchange", "rebuild", "none"))},
        "add block": {"where": rng.choice(("start", "end")), "kind": rng.choice(("plain", "tanh", "norm")),
                      "seed": seed, "refit": rng.choice(("add", "rebuild", "none"))},
        "delete block": {"which": number, "refit": rng.choice(("exchange", "none"))},
        "tie": {"which": number, "other": rng.randrange(60), "refit": rng.choice(("exchange", "none"))},
        "untie": {"which": number, "refit": refit},
        "new optimizer": {"which": number, "kind": rng.choice(("sgd", "momentum", "adam")), "keep": seed % 2 == 0},
        "train a copy": {**passing, "zero": "none"},
    }  # fmt: skip
    return Op(name, arguments.get(name, {}))


def draw_ops(rng: random.Random, ids: list[str], often: frozenset[str] = frozenset()) -> tuple[Op, ...]:
    """Draw a sequence of operations that ends with two training steps."""
    weights = [weight * OFTEN if name in often else weight for name, weight in WEIGHTS.items()]
    names = rng.choices(list(WEIGHTS), weights, k=rng.randint(8, 30) - 2)
    ops = []
    for name in [*names, "train", "train"]:
        op = draw_op(rng, name, ids, often)
        if name == "train" and rng.random() < 0.15:
            event = draw_op(rng, rng.choice(EVENTS), ids)
            op = replace(op, **{rng.choice(("before_backward", "before_step")): (event,)})
        ops.append(op)
    return tuple(ops)


def generate(seed: int, often: frozenset[str] = frozenset()) -> Program:
    """Return the random program of a seed.

    Args:
        seed: The seed.
        often: Operations that are drawn more often than in other programs, to find rare faults of one kind. The name
            "method" stands for passes that do not call the root.
    """
    rng = random.Random(seed)
    spec = draw_model(rng)
    model = Net(spec)
    kinds = tuple(rng.choice(("sgd", "momentum", "adam")) for _ in range(rng.choice((1, 1, 2))))
    left_out = rng.choice((None, None, None, "head.bias"))
    if len(kinds) == 2 and spec.tied:
        left_out = None  # the second optimizer would be empty
    hooks: list[HookSpec] = []
    for _ in range(rng.randint(1, 4)):
        hook = None
        while hook is None:
            hook = draw_hook(rng, f"h{len(hooks)}", model, len(kinds))
        hooks.append(hook)
    if any("head.bias" in hook.on and hook.at in ("grad_final", "update") for hook in hooks):
        left_out = None  # an exact name that is not in an optimizer is refused
    ops = draw_ops(rng, [hook.id for hook in hooks], often)
    program = Program(spec, tuple(hooks), OptimizerSpec(kinds, left_out), ops, detach=rng.random() < 0.5)
    # Adam divides a gradient by its size, so a small gradient makes a rounding difference large.
    return replace(program, model=replace(spec, dtype=torch.float64)) if program.sums else program


def only_steps(program: Program) -> Program:
    """Return the program with nothing but plain training steps through the root, to check the oracle itself."""
    ops = tuple(Op("train", {**op.args, "via": "root", "zero": "none"}) for op in program.ops if op.name == "train")
    return replace(copy.copy(program), ops=ops)
