"""Defines the rows of the matrix: a hook at every point, by hand in plain PyTorch and with tenterhook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import tenterhook as th

TARGETS = {
    "input": "mid", "output": "mid", "grad_output": "mid", "grad_input": "mid",
    "grad": "mid.weight", "grad_accumulated": "mid.weight", "grad_final": "mid.weight", "update": "mid.weight",
    "value": ":mark", "value_grad": ":mark",
    "step_pre": "optimizer**", "step_post": "optimizer**",
    "save_pre": "mid", "save_post": "mid", "load_pre": "mid", "load_post": "mid",
}  # fmt: skip


def target(point: str, prefix: str = "") -> str:
    return prefix * TARGETS[point].startswith("mid") + TARGETS[point]


class Hand:
    """Implements a hook at one point by hand, in plain PyTorch. `change`, if given, modifies the tensor."""

    def __init__(self, point: str | None, change: Callable[[Tensor], Tensor] | None = None) -> None:
        self.point = point
        self.change = change
        self.seen: list[Any] = []
        self._handles: list[Any] = []

    def act(self, x: Tensor) -> Tensor | None:
        self.seen.append(x.detach().clone())
        return self.change(x) if self.change else None

    def at(self, point: str) -> bool:
        return self.point == point

    # in the forward

    def value(self, point: str, x: Tensor) -> Tensor:
        """Do what a forward hook would do. A recomputation repeats the change, but is not recorded again."""
        if not self.at(point):
            return x
        if torch._C._current_graph_task_id() != -1:
            return self.change(x) if self.change else x
        new = self.act(x)
        return x if new is None else new

    def gradient(self, point: str, x: Tensor, *, alias: bool = False) -> Tensor:
        if not self.at(point) or not x.requires_grad or not torch.is_grad_enabled():
            return x
        if alias:
            x = x.view_as(x)
        x.register_hook(self.act)
        return x

    # on a parameter

    def on_parameter(self, p: Tensor) -> None:
        if self.at("grad"):
            self._handles.append(p.register_hook(self.act))
        elif self.at("grad_accumulated"):

            def accumulated(p: Tensor) -> None:
                new = self.act(p.grad)
                if new is not None:
                    p.grad = new

            self._handles.append(p.register_post_accumulate_grad_hook(accumulated))

    def again_on_parameter(self, p: Tensor) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        p._backward_hooks = p._post_accumulate_grad_hooks = None
        self.on_parameter(p)

    # around the optimizer's step

    def final(self, p: Tensor) -> None:
        if self.at("grad_final") and p.grad is not None:
            with torch.no_grad():
                new = self.act(p.grad)
            if new is not None:
                p.grad = new

    def step(self, p: Tensor, optimizer: torch.optim.Optimizer, step: Callable[[], Any]) -> None:
        if self.at("step_pre"):
            self.seen.append(type(optimizer).__name__)
        before = p.detach().clone()
        step()
        held = any(p is q for g in optimizer.param_groups for q in g["params"])
        if self.at("update") and held:
            self.act(p.detach() - before)
        if self.at("step_post"):
            self.seen.append(type(optimizer).__name__)

    # at a state dict

    def on_state(self, module: nn.Module) -> None:
        see = self.seen.append
        if self.at("save_pre"):
            module.register_state_dict_pre_hook(lambda m, prefix, keep: see(prefix))
        if self.at("save_post"):
            module.register_state_dict_post_hook(lambda m, sd, prefix, meta: see(sorted(sd)))
        if self.at("load_pre"):
            module.register_load_state_dict_pre_hook(lambda m, sd, *rest: see(sorted(sd)))
        if self.at("load_post"):
            module.register_load_state_dict_post_hook(lambda m, keys: see(list(keys.missing_keys)))


class Recorded:
    """Implements the same hook for a plan, as a plain function of the value."""

    def __init__(self, point: str, change: Callable[[Tensor], Tensor] | None) -> None:
        self.point = point
        self.change = change
        self.seen: list[Any] = []

    def __call__(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            recomputing = torch._C._current_graph_task_id() != -1 and self.point in ("input", "output", "value")
            if not recomputing:
                self.seen.append(value.detach().clone())
            return self.change(value) if self.change else None
        if isinstance(value, torch.optim.Optimizer):
            self.seen.append(type(value).__name__)
        elif isinstance(value, str):
            self.seen.append(value)
        elif isinstance(value, dict):
            self.seen.append(sorted(value))
        else:
            self.seen.append(list(value.missing_keys))

    def hook(self, prefix: str = "") -> th.Hook:
        return th.Hook("cell", on=target(self.point, prefix), at=self.point, do=self)

    def named(self, prefix: str = "") -> tuple[th.Hook, th.Registry]:
        """Return the same hook with a registered observer, which cannot modify the value."""
        registry = th.Registry()

        @th.action("see", registry=registry)
        def see(value: Tensor) -> None:
            self(value.clone())

        on = target(self.point, prefix)
        return th.Hook("cell", on=on, at=self.point, do=see(), when=th.When(phase="any")), registry
