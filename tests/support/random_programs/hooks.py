"""Describe the hooks of a program, match their selectors, and define their actions for the rig and by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

import tenterhook as th
from tests.support.random_programs.model import module_names, owners, parameter_names

FORWARD = ("input", "output")
MODULE = ("input", "output", "grad_output", "grad_input")
PARAMETER = ("grad", "grad_accumulated", "grad_final", "update")
OBSERVERS = ("stats", "capture", "note")


@dataclass(frozen=True)
class HookSpec:
    """Describe one hook: its id, its selector, its point, and the name and number of its action."""

    id: str
    on: tuple[str, ...]
    at: str
    do: str
    number: float = 0.0

    def __str__(self) -> str:
        action = self.do if self.do in (*OBSERVERS, "shift", "by_step") else f"{self.do}({self.number})"
        return f"{self.id}: {action} at {self.at} on {', '.join(self.on)}"

    @property
    def observes(self) -> bool:
        return self.do in OBSERVERS

    def hook(self, notes: list[tuple[str, float]]) -> th.Hook:
        """Return the hook for tenterhook. The action "note" appends to `notes`."""

        def note(x: Tensor) -> None:
            notes.append((self.id, norm([x])))

        actions = {
            "scale": lambda: th.scale(self.number),
            "clip_value": lambda: th.clip_value(self.number),
            "clip_norm": lambda: th.clip_norm(self.number),
            "clip_total": lambda: th.clip_norm(self.number, over="hook"),
            "stats": th.stats,
            "capture": th.capture,
            "note": lambda: note,
            "shift": lambda: shift,
            "by_step": lambda: lambda x, ctx: stepped(x, ctx.step),
        }
        return th.Hook(self.id, on=list(self.on), at=self.at, do=actions[self.do]())

    def by_hand(self, x: Tensor, step: int) -> Tensor:
        """Return what the modifier makes of a value."""
        if self.do == "scale":
            return x * self.number
        if self.do == "clip_value":
            return x.clamp(-self.number, self.number)
        if self.do == "clip_norm":
            return x * (self.number / (torch.linalg.vector_norm(x) + 1e-6)).clamp(max=1.0)
        if self.do == "by_step":
            return stepped(x, step)
        assert self.do == "shift"
        return shift(x)


def shift(x: Tensor) -> Tensor:
    """Multiply a value by one half and add a constant, so that a zero does not stay a zero."""
    return x * 0.5 + 0.01


def stepped(x: Tensor, step: int) -> Tensor:
    """Multiply a value by a factor that depends on the step."""
    return x * (1.0 + 0.25 * (step % 3))


def norm(parts: Sequence[Tensor]) -> float:
    """Return the norm of all parts together, computed in double precision."""
    return float(sum(part.detach().double().square().sum() for part in parts).sqrt())


# -- selectors --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1000)
def _expression(pattern: str) -> re.Pattern[str]:
    """Translate a pattern: a star stays within one part, two stars cross parts."""
    pieces = re.split(r"(\*\*|\*)", pattern)
    text = "".join({"**": ".+", "*": "[^.]*"}.get(piece, re.escape(piece)) for piece in pieces)
    return re.compile(text)


def _matches(pattern: str, name: str, classes: set[str]) -> bool:
    if pattern.startswith("type:"):
        return pattern[5:] in classes
    if "*" not in pattern:
        return pattern == name
    return name != "." and _expression(pattern).fullmatch(name) is not None


def selected(on: tuple[str, ...], name: str, classes: set[str]) -> bool:
    """Return True if a name is selected: at least one pattern matches, and no pattern with `!` does."""
    take = any(_matches(pattern, name, classes) for pattern in on if pattern[0] != "!")
    return take and not any(_matches(pattern[1:], name, classes) for pattern in on if pattern[0] == "!")


def _classes(module: nn.Module) -> set[str]:
    return {cls.__name__ for cls in type(module).__mro__}


def modules_of(hook: HookSpec, model: nn.Module) -> list[nn.Module]:
    """Return the modules that a hook selects now, each once."""
    return [module for module, names in module_names(model).items()
            if any(selected(hook.on, name, _classes(module)) for name in names)]  # fmt: skip


def parameters_of(hook: HookSpec, model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that a hook selects now, each once, in the order of the model."""
    classes: dict[nn.Parameter, set[str]] = {}
    if any("type:" in pattern for pattern in hook.on):
        for parameter, module in owners(model):
            classes.setdefault(parameter, set()).update(_classes(module))
    return [parameter for parameter, names in parameter_names(model).items()
            if any(selected(hook.on, name, classes.get(parameter, set())) for name in names)]  # fmt: skip


def targets_of(hook: HookSpec, model: nn.Module) -> Sequence[nn.Module | nn.Parameter]:
    """Return the targets that a hook selects now."""
    return modules_of(hook, model) if hook.at in MODULE else parameters_of(hook, model)
