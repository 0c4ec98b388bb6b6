"""Define what the operations act on: a model with its optimizers. The rig and the oracle override some methods."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tests.support.random_programs.model import BATCHES, Net, loss_of, parameter_names


@dataclass(frozen=True)
class OptimizerSpec:
    """Describe the optimizers: the kind of each, and whether a parameter is left out at first."""

    kinds: tuple[str, ...] = ("sgd",)
    left_out: str | None = None

    def __str__(self) -> str:
        text = " and ".join(self.kinds)
        return f"{text}, without {self.left_out}" if self.left_out else text


def build_optimizer(kind: str, parameters: list[nn.Parameter]) -> Optimizer:
    """Return a new optimizer."""
    if kind == "adam":
        return torch.optim.Adam(parameters, lr=0.02)
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9 if kind == "momentum" else 0.0)


def build_optimizers(model: Net, spec: OptimizerSpec) -> list[Optimizer]:
    """Return the optimizers of a model. If there are two, the second one has the parameters of the head."""
    parts: list[list[nn.Parameter]] = [[] for _ in spec.kinds]
    for parameter, names in parameter_names(model).items():
        if spec.left_out not in names:
            parts[-1 if names[0].startswith("head") else 0].append(parameter)
    return [build_optimizer(kind, part) for kind, part in zip(spec.kinds, parts, strict=True)]


class Wrapper:
    """An object that steps an optimizer, but is none."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer

    def step(self) -> None:
        self.optimizer.step()


class Side:
    """A model with its optimizers, without hooks."""

    def __init__(self, model: Net, optimizers: list[Optimizer]) -> None:
        self.model = model
        self.optimizers = optimizers
        self.copy: Side | None = None
        self.kept: list[Optimizer] = []
        #: True if a pass has begun since the last step
        self.within_step = False
        #: True if the program steps its optimizers through a wrapper
        self.wraps = False

    # overridden where hooks act

    def begin_forward(self) -> None:
        """Prepare for a forward pass."""

    def begin_backward(self) -> None:
        """Prepare for the backward pass of the last forward pass."""

    def end_pass(self) -> None:
        """Clean up after a forward pass and its backward pass."""

    def touched(self) -> None:
        """Take note that names or modules of the model change."""

    def swapped(self, parameter: nn.Parameter) -> None:
        """Take note that the contents of a parameter were swapped."""

    def cleared(self) -> None:
        """Take note that the gradients are cleared."""

    def mute(self, id: str) -> None:
        """Switch a hook off."""

    def unmute(self, id: str) -> None:
        """Switch a hook on."""

    def detach(self) -> None:
        """Remove all hooks for good."""

    def compile(self) -> None:
        """Compile the model."""

    def step(self, index: int) -> None:
        """Take a step of one optimizer."""
        optimizer = self.optimizers[index]
        (Wrapper(optimizer) if self.wraps else optimizer).step()

    # the same for all

    def step_all(self) -> None:
        """Take a step of every optimizer, in order."""
        for index in range(len(self.optimizers)):
            self.step(index)
        self.within_step = False

    def loss(self, batch: int, via: str) -> Tensor:
        """Compute the loss of a batch through the root, through a module around it, or through another method."""
        x = BATCHES[batch % len(BATCHES)].to(self.model.spec.dtype)
        if self.model.spec.input_grad or self.model.spec.reentrant:
            x = x.clone().requires_grad_()
        if via == "method":
            return self.model.loss(x)
        return loss_of(nn.Sequential(self.model)(x) if via == "wrapper" else self.model(x))

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Prepare for a forward pass and its backward pass, and clean up after them."""
        self.within_step = True
        self.begin_forward()
        try:
            yield
        finally:
            self.end_pass()

    def backward(self, loss: Tensor) -> None:
        """Run the backward pass, if the loss depends on anything that requires grad."""
        self.begin_backward()
        if loss.requires_grad:
            loss.backward()

    def bare_copy(self) -> Side:
        """Return a copy of the model with an optimizer of its own."""
        model = copy.deepcopy(self.model)
        return Side(model, [torch.optim.SGD(model.parameters(), lr=0.1)])


def refit(side: Side, before: dict[str, nn.Parameter], mode: str) -> None:
    """Give the optimizers the new parameters of the model, after an operation has replaced or added some.

    Args:
        side: The model after the operation, with its optimizers.
        before: The parameters by name before the operation.
        mode: "exchange" exchanges the old parameter for the new one in its group, "add" adds new parameters with
            `add_param_group` and leaves the old ones, "rebuild" makes all groups again, and "none" does nothing.
    """
    if mode == "none":
        return
    holder = {p: k for k, o in enumerate(side.optimizers) for group in o.param_groups for p in group["params"]}
    current = parameter_names(side.model)
    was_left_out = {name for name, p in before.items() if p not in holder}
    for new, names in current.items():
        if new in holder or all(before.get(name) is new for name in names) or names[0] in was_left_out:
            continue
        old = before.get(names[0])
        index = holder.get(old, len(side.optimizers) - 1) if old is not None else len(side.optimizers) - 1
        optimizer = side.optimizers[index]
        if mode != "exchange" or old is None or old in current or not _exchange(optimizer, old, new):
            optimizer.add_param_group({"params": [new]})
        holder[new] = index
    if mode != "add":
        for optimizer in side.optimizers:
            for group in optimizer.param_groups:
                group["params"] = [p for p in group["params"] if p in current]
    if mode == "rebuild":
        for optimizer in side.optimizers:
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            optimizer.param_groups.clear()
            optimizer.state.clear()
            optimizer.add_param_group({"params": parameters})


def _exchange(optimizer: Optimizer, old: nn.Parameter, new: nn.Parameter) -> bool:
    """Exchange a parameter for another one in its group."""
    for group in optimizer.param_groups:
        for i, p in enumerate(group["params"]):
            if p is old:
                group["params"][i] = new
                optimizer.state.pop(old, None)
                return True
    return False
