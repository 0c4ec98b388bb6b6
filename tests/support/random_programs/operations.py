"""Define the operations of the programs. Each one carries its own arguments and acts on any side alike."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tests.support.random_programs.model import (
    Block,
    Kind,
    build_block,
    named_parameters,
    numbers,
    parameter_names,
    slots,
    weights,
)
from tests.support.random_programs.sides import Side, build_optimizer, refit

T = TypeVar("T")


@dataclass(frozen=True)
class Op:
    """Describe one operation: its name, its arguments, and the operations that run between the parts of a step."""

    name: str
    args: dict[str, Any] = field(default_factory=dict)
    before_backward: tuple[Op, ...] = ()
    before_step: tuple[Op, ...] = ()

    def __str__(self) -> str:
        inside = ", ".join(f"{name}={value}" for name, value in self.args.items() if value is not None)
        text = f"{self.name}({inside})"
        for events, moment in ((self.before_backward, "before backward"), (self.before_step, "before step")):
            if events:
                text += f"[{moment}: {'; '.join(map(str, events))}]"
        return text


OPERATIONS: dict[str, Callable[[Side, Op], None]] = {}


def operation(name: str) -> Callable[[Callable[[Side, Op], None]], Callable[[Side, Op], None]]:
    """Register the function of an operation."""

    def keep(function: Callable[[Side, Op], None]) -> Callable[[Side, Op], None]:
        OPERATIONS[name] = function
        return function

    return keep


def perform(side: Side, op: Op) -> None:
    """Perform an operation on a side."""
    OPERATIONS[op.name](side, op)


def pick(items: Sequence[T], number: int) -> T | None:
    """Return one of the items, or None if there are none."""
    return items[number % len(items)] if items else None


def names_of(side: Side) -> dict[str, nn.Parameter]:
    """Return the parameters by name, with all names of each."""
    return dict(named_parameters(side.model))


# -- passes and steps -------------------------------------------------------------------------------------------------


def zero(side: Side, mode: str) -> None:
    """Clear the gradients in one of three ways, or not at all."""
    if mode != "keep":
        side.cleared()
    if mode == "model":
        side.model.zero_grad()
    elif mode != "keep":
        for optimizer in side.optimizers:
            optimizer.zero_grad(set_to_none=mode == "none")


def run_pass(side: Side, op: Op) -> None:
    """Run a forward pass and a backward pass."""
    zero(side, op.args["zero"])
    with side.passing():
        loss = side.loss(op.args["batch"], op.args["via"])
        for event in op.before_backward:
            perform(side, event)
        side.backward(loss)


@operation("train")
def train(side: Side, op: Op) -> None:
    run_pass(side, op)
    for event in op.before_step:
        perform(side, event)
    side.step_all()


@operation("accumulate")
def accumulate(side: Side, op: Op) -> None:
    run_pass(side, op)


@operation("step")
def step(side: Side, op: Op) -> None:
    side.step_all()


@operation("sharpness-aware step")
def sharpness_aware_step(side: Side, op: Op) -> None:
    """Compute the gradients at a point nearby, as SAM does: two backward passes, one step."""
    run_pass(side, op)
    moved = [(p, 0.05 * p.grad) for p in parameter_names(side.model) if p.grad is not None]
    with torch.no_grad():
        for p, by in moved:
            p.add_(by)
    run_pass(side, op)
    with torch.no_grad():
        for p, by in moved:
            p.sub_(by)
    side.step_all()


@operation("train inside except")
def train_inside_except(side: Side, op: Op) -> None:
    try:
        raise LookupError("an error that is being handled")
    except LookupError:
        train(side, op)


@operation("train frozen once")
def train_frozen_once(side: Side, op: Op) -> None:
    chosen = chosen_to_freeze(side, op)
    for p in chosen:
        p.requires_grad_(False)
    train(side, op)
    for p in chosen:
        p.requires_grad_(True)


@operation("evaluate")
def evaluate(side: Side, op: Op) -> None:
    training = side.model.training
    side.model.train(op.args["mode"] == "train")
    with torch.no_grad(), side.passing():
        side.loss(op.args["batch"], op.args["via"])
    side.model.train(training)


@operation("forward only")
def forward_only(side: Side, op: Op) -> None:
    with side.passing():
        side.loss(op.args["batch"], op.args["via"])


@operation("fail in forward")
def fail_in_forward(side: Side, op: Op) -> None:
    side.model.fuse, side.model.error = op.args["which"], ArithmeticError
    if op.args.get("interrupted"):
        side.model.error = KeyboardInterrupt  # PyTorch calls no forward hook then, not even one with always_call
    try:
        with side.passing():
            side.loss(op.args["batch"], op.args["via"])
    except (ArithmeticError, KeyboardInterrupt):
        pass
    finally:
        side.model.fuse = None


@operation("fail in backward")
def fail_in_backward(side: Side, op: Op) -> None:
    zero(side, op.args["zero"])

    def fail(parameter: Tensor) -> None:
        raise ArithmeticError("the backward pass fails")

    handle = None
    try:
        with side.passing():
            loss = side.loss(op.args["batch"], op.args["via"])
            side.begin_backward()
            parameter = pick([p for p in parameter_names(side.model) if p.requires_grad], op.args["which"])
            handle = parameter.register_post_accumulate_grad_hook(fail) if parameter is not None else None
            if loss.requires_grad:
                loss.backward()
    except ArithmeticError:
        pass
    finally:
        if handle is not None:
            handle.remove()
            if not parameter._post_accumulate_grad_hooks:  # after a swap, PyTorch takes an empty dict for installed
                parameter._post_accumulate_grad_hooks = None


@operation("zero_grad")
def zero_grad(side: Side, op: Op) -> None:
    zero(side, op.args["zero"])


# -- frozen, unfrozen, modes, muted -----------------------------------------------------------------------------------


def chosen_to_freeze(side: Side, op: Op) -> list[nn.Parameter]:
    """Return the parameters of one module, or one parameter, that are not frozen yet."""
    number = op.args["which"]
    if op.args["what"] == "module":
        module = pick(
            [m for m in side.model.modules() if m is not side.model and any(True for _ in m.parameters())], number
        )
        found = list(module.parameters()) if module is not None else []
    else:
        found = [p for p in [pick(list(parameter_names(side.model)), number)] if p is not None]
    return [p for p in found if p.requires_grad]


@operation("freeze")
def freeze(side: Side, op: Op) -> None:
    for p in chosen_to_freeze(side, op):
        p.requires_grad_(False)


@operation("unfreeze")
def unfreeze(side: Side, op: Op) -> None:
    frozen = [p for p in parameter_names(side.model) if not p.requires_grad]
    chosen = frozen if op.args["what"] == "module" else [pick(frozen, op.args["which"])]
    for p in chosen:
        if p is not None:
            p.requires_grad_(True)


@operation("eval")
def eval_mode(side: Side, op: Op) -> None:
    side.model.eval()


@operation("train mode")
def train_mode(side: Side, op: Op) -> None:
    side.model.train()


@operation("mute")
def mute(side: Side, op: Op) -> None:
    side.mute(op.args["id"])


@operation("unmute")
def unmute(side: Side, op: Op) -> None:
    side.unmute(op.args["id"])


# -- changed models ---------------------------------------------------------------------------------------------------


def built_at(build: Callable[[], T], place: int | None) -> T:
    """Build an object, if possible at the place in memory where an object was that no longer exists."""
    tries: list[T] = []
    while len(tries) < 40:
        new = build()
        if place is None or id(new) == place:
            return new
        tries.append(new)
    return tries[-1]


def replaced_module(side: Side, op: Op, seed: int, place: int | None) -> int | None:
    """Replace a linear layer or a block by a new module of the same kind. Return the id of the old one."""
    kinds = (nn.Linear, Block) if op.args["what"] == "any" else (nn.Linear,)
    slot = pick(slots(side.model, kinds), op.args["which"])
    if slot is None:
        return None
    parent, name = slot
    old = getattr(parent, name)
    kind: Kind = "plain" if isinstance(old, nn.Linear) else "tanh" if old.norm is None else "norm"
    new = built_at(lambda: build_block(kind, seed, side.model.spec.dtype), place)
    new.train(old.training)
    setattr(parent, name, new)
    return id(old)


def replaced_parameter(side: Side, op: Op, seed: int, place: int | None) -> int:
    """Assign a new parameter to a name. Return the id of the old one."""
    name, old = pick(named_parameters(side.model), op.args["which"])
    path, _, last = name.rpartition(".")
    value = numbers(old.shape, seed, old.dtype)
    new = built_at(lambda: nn.Parameter(value.clone(), requires_grad=old.requires_grad), place)
    setattr(side.model.get_submodule(path), last, new)
    return id(old)


def replace_several_times(side: Side, op: Op, replaced: Callable[[Side, Op, int, int | None], int | None]) -> None:
    """Replace something once, or more often in a row: then the last one may have the id of the first one."""
    side.touched()
    place: int | None = None
    for i in range(op.args["times"]):
        before = names_of(side)
        first = replaced(side, op, op.args["seed"] + i, place)
        place = first if place is None else place
        refit(side, before, op.args["refit"])
        del before


@operation("replace module")
def replace_module(side: Side, op: Op) -> None:
    replace_several_times(side, op, replaced_module)


@operation("replace parameter")
def replace_parameter(side: Side, op: Op) -> None:
    replace_several_times(side, op, replaced_parameter)


@operation("swap")
def swap(side: Side, op: Op) -> None:
    """Give a parameter the contents of another tensor, as `Module.to` does if torch is set to swap parameters.

    A swap between two passes of one step is noticed only if the second one calls the root. PyTorch reports no swaps,
    and to look for them before each step would make following much slower.
    """
    if side.within_step:
        return
    side.touched()
    _, parameter = pick(named_parameters(side.model), op.args["which"])
    value = numbers(parameter.shape, op.args["seed"], parameter.dtype)
    new = nn.Parameter(value, requires_grad=parameter.requires_grad)
    try:
        torch.utils.swap_tensors(parameter, new)
    except RuntimeError:  # the graph of a backward pass that has failed still refers to the parameter
        parameter.data, parameter.grad = new.data, None
    side.swapped(parameter)


@operation("load assign")
def load_assign(side: Side, op: Op) -> None:
    side.touched()
    before = names_of(side)
    state = {name: value.clone() * 0.9 for name, value in side.model.state_dict().items()}
    side.model.load_state_dict(state, assign=True)
    refit(side, before, op.args["refit"])


@operation("add block")
def add_block(side: Side, op: Op) -> None:
    side.touched()
    before = names_of(side)
    index = 0 if op.args["where"] == "start" else len(side.model.all_blocks())
    block = build_block(op.args["kind"], op.args["seed"], side.model.spec.dtype)
    block.train(side.model.training)
    side.model.insert(index, block)
    refit(side, before, op.args["refit"])


@operation("delete block")
def delete_block(side: Side, op: Op) -> None:
    side.touched()
    before = names_of(side)
    blocks = side.model.all_blocks()
    if len(blocks) > 1:
        side.model.remove(op.args["which"] % len(blocks))
        refit(side, before, op.args["refit"])


@operation("tie")
def tie(side: Side, op: Op) -> None:
    side.touched()
    before = names_of(side)
    places = weights(side.model)
    one, other = pick(places, op.args["which"]), pick(places, op.args["other"])
    one[0].weight = other[0].weight
    refit(side, before, op.args["refit"])


@operation("untie")
def untie(side: Side, op: Op) -> None:
    side.touched()
    before = names_of(side)
    several = [(p, names) for p, names in parameter_names(side.model).items() if len(names) > 1]
    found = pick(several, op.args["which"])
    if found is None:
        return
    parameter, names = found
    path, _, last = names[-1].rpartition(".")
    new = nn.Parameter(parameter.detach().clone(), requires_grad=parameter.requires_grad)
    setattr(side.model.get_submodule(path), last, new)
    refit(side, before, op.args["refit"])


# -- optimizers and copies --------------------------------------------------------------------------------------------


@operation("add group")
def add_group(side: Side, op: Op) -> None:
    held = {p for optimizer in side.optimizers for group in optimizer.param_groups for p in group["params"]}
    missing = [p for p in parameter_names(side.model) if p not in held]
    if missing:
        side.optimizers[-1].add_param_group({"params": missing})


@operation("new optimizer")
def new_optimizer(side: Side, op: Op) -> None:
    index = op.args["which"] % len(side.optimizers)
    trained = {p for group in side.optimizers[index].param_groups for p in group["params"]}
    if not trained.intersection(parameter_names(side.model)):
        return  # the optimizer does not train the model, so its steps do not matter
    if op.args["keep"]:
        side.kept.append(side.optimizers[index])
    held = [p for group in side.optimizers[index].param_groups for p in group["params"]]
    side.optimizers[index] = build_optimizer(op.args["kind"], held)


@operation("wrap optimizers")
def wrap_optimizers(side: Side, op: Op) -> None:
    """Step through a wrapper from now on, as Accelerate and others do."""
    side.wraps = True


@operation("compile")
def compile_later(side: Side, op: Op) -> None:
    side.compile()


@operation("train a copy")
def train_a_copy(side: Side, op: Op) -> None:
    side.copy = side.bare_copy()
    train(side.copy, op)


@operation("detach")
def detach(side: Side, op: Op) -> None:
    side.detach()


@operation("collect garbage")
def collect_garbage(side: Side, op: Op) -> None:
    gc.collect()
