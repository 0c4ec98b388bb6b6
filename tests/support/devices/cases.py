"""List the actions, and run each at each point where it is allowed, on the CPU and on another device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import tenterhook as th
from tenterhook.actions import BUILTIN
from tenterhook.actions.definition import TENSOR_POINTS
from tests.support.devices.programs import Outcome, hook, sent, train
from tests.support.devices.transfers import WAITS, Kind, counts

#: the actions with parameters with which they act on the small model; a function gets the device
ACTIONS: dict[str, Callable[[str], Any]] = {
    "stats()": lambda device: th.stats(),
    "skew()": lambda device: th.skew(),
    "histogram()": lambda device: th.histogram(),
    "ratio()": lambda device: th.ratio(),
    "capture()": lambda device: th.capture(),
    'capture(to="cpu")': lambda device: th.capture(to="cpu"),
    "digest()": lambda device: th.digest(),
    "weight_digest()": lambda device: th.weight_digest(),
    "watch_nonfinite()": lambda device: th.watch_nonfinite(),
    "spike()": lambda device: th.spike(warmup=2),
    "scale()": lambda device: th.scale(0.5),
    "reverse()": lambda device: th.reverse(),
    "clip_value()": lambda device: th.clip_value(0.01),
    "clip_norm()": lambda device: th.clip_norm(0.05),
    'clip_norm(over="hook")': lambda device: th.clip_norm(0.05, over="hook"),
    "clip_adaptive()": lambda device: th.clip_adaptive(0.01),
    "clip_zscore()": lambda device: th.clip_zscore(0.5, warmup=2),
    'clip_zscore(over="hook")': lambda device: th.clip_zscore(0.5, warmup=2, over="hook"),
    "mask()": lambda device: th.mask(by=_number(0.5, device)),
    "steer()": lambda device: th.steer(by=_number(0.25, device)),
    "noise()": lambda device: th.noise(0.01),
    "nan_to_num()": lambda device: th.nan_to_num(),
}


def _number(value: float, device: str) -> Tensor:
    return sent(torch.tensor(value), device)


def name_of(action: str) -> str:
    """Return the name under which an action is registered."""
    return action.partition("(")[0]


def cases() -> Iterator[tuple[str, str]]:
    """Yield each action with each point of a tensor at which it is allowed."""
    for action in ACTIONS:
        for point in TENSOR_POINTS:
            over_hook = "over=" in action
            if point in BUILTIN.get(name_of(action)).at and (point == "grad_final" or not over_hook):
                yield action, point


@dataclass(frozen=True, slots=True)
class Case:
    """Holds the results of an action at a point. A count is that of the step with the most of them."""

    action: str
    point: str
    most: dict[str, int]
    differs: list[str]
    #: the kinds of transfer of the threads of the training, each with its place
    places: list[str]
    threads: list[str]

    @property
    def waits(self) -> int:
        """Return how often the training waited for the device in a step."""
        return sum(self.most[kind] for kind in WAITS)

    @property
    def copies(self) -> int:
        """Return the number of asynchronous copies to the host in a step."""
        return self.most[Kind.TO_HOST_LATER]


def run(action: str, point: str, device: str) -> Case:
    """Run one case on the CPU and on a device, and compare them."""
    at_home, away = (train(hook(ACTIONS[action](place), point), place) for place in ("cpu", device))
    found = case_of(action, point, at_home, away)
    assert away.fired["case"], f"{action} did not fire at {point}"
    return found


def case_of(action: str, point: str, at_home: Outcome, away: Outcome) -> Case:
    """Compare a training on a device with the same training on the CPU."""
    steps = [counts(transfers) for transfers in away.transfers]
    most = {kind: max(step[kind] for step in steps) for kind in steps[0]}
    found = [one for transfers in away.transfers for one in transfers if one.in_training]
    places = sorted({f"{one.kind}: {one.operation} in {one.place}" for one in found})
    return Case(action, point, most, at_home.differences(away), places, sorted({one.thread for one in found}))


def copies_expected(action: str, point: str) -> int | None:
    """Return the number of asynchronous copies to the host in a recorded step, or None if it depends on the model."""
    if action == 'capture(to="cpu")':
        return None
    return 0 if action == "capture()" else 1
