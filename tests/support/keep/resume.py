"""Prove that resuming is exact at every point of a run, and that leaving out any part of the state is detected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import tenterhook as th
from tenterhook.rig.runtime.step_clock import StepClock
from tests.support.keep.containers import CONTAINERS, WAYS, resume
from tests.support.keep.training import DIM, Run, differences

PAIRS = tuple(product(CONTAINERS, WAYS))


@contextmanager
def resumed(path: Path, container: str, way: str, **options: Any) -> Iterator[Run]:
    """Resume a saved run for a while, and restore the random numbers of the run that continues afterwards."""
    rng = torch.get_rng_state()
    run = resume(path, container, way, **options)
    try:
        yield run
    finally:
        run.rig.detach()
        torch.set_rng_state(rng)


# -- the proof ---------------------------------------------------------------------------------------------------------


@dataclass
class Proof:
    points: int = 0
    resumed: int = 0
    wrong: list[str] = field(default_factory=list)


def prove(steps: int, *, by_turns: bool = False) -> Proof:
    """Check at each point that a restored run equals the saved one bit for bit, and still does one part later.

    Each point uses every container and way to restore, or with `by_turns` one of them.
    """
    live, proof = Run(), Proof()
    live.attach()
    then = live.bits()
    while live.step < steps:
        pairs = [PAIRS[proof.points % len(PAIRS)]] if by_turns else PAIRS
        where = f"step {live.step}, before {live.next}"
        with TemporaryDirectory() as folder:
            for container in {container for container, _ in pairs}:
                CONTAINERS[container].save(live, Path(folder, container))
            live.advance()
            now, then = then, live.bits()
            for container, way in pairs:
                with resumed(Path(folder, container), container, way) as run:
                    wrong = differences(now, run.bits())
                    run.advance()
                    wrong += differences(then, run.bits())
                proof.resumed += 1
                proof.wrong += [f"{where}, {container}, {way}: {name}" for name in wrong]
        proof.points += 1
    if live.digest() != undisturbed(steps):
        proof.wrong.append("the run that was saved differs from a run that was not")
    return proof


def undisturbed(steps: int) -> str:
    """Return the digest of a run that was never saved."""
    run = Run()
    run.attach()
    while run.step < steps:
        run.advance()
    return run.digest()


# -- the counter-proof -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ablation:
    """Leave out one part of the state that is restored. The run must then differ."""

    what: str
    #: the ablation is tried at the first point for which this is true, after all hooks have started
    where: Callable[[Run], bool]
    #: the component of the run that must differ
    shows_in: str
    #: sets a part of the hooks' state back to that of a new rig
    drop: Callable[[th.Rig], object] | None = None
    #: other options for `resume`
    options: Mapping[str, Any] = field(default_factory=dict)


def between(before: str, after: str) -> Callable[[Run], bool]:
    """Return a test for the point after one part of a step and before another."""
    return lambda run: (run.last, run.next) == (before, after)


def _of(hook: str, table: str) -> Callable[[th.Rig], object]:
    return lambda rig: getattr(rig._attached_hook(hook).state, table).clear()


def _partials(hook: str) -> Callable[[th.Rig], object]:
    return lambda rig: rig._attached_hook(hook).partials.clear()


def _clock(**fresh: Any) -> Callable[[th.Rig], object]:
    """Return a function that sets attributes of the part of the clock that has them."""

    def drop(rig: th.Rig) -> None:
        parts = (rig._clock, rig._clock.passes, rig._installer.environment.gradients)
        for name, value in fresh.items():
            (part,) = (part for part in parts if hasattr(part, name))
            setattr(part, name, value)
        rig._apply_schedule()

    return drop


def _counters(rig: th.Rig) -> None:
    for site in rig._attached_hook("noise").sites:
        site.reset()


def _due(rig: th.Rig) -> None:
    rig._attached_hook("clip").due_steps = 0


def _counted(rig: th.Rig) -> None:
    rig._attached_hook("window").counted = -1


STEP = between("update", "arrange")
MICRO = between("micro", "micro")
EVALUATED = between("evaluate", "micro")

ABLATIONS = [
    *(Ablation(name, STEP, "model", options={"without": name})
      for name in ("model", "optimizer", "scheduler", "loader", "rng")),
    Ablation("gradients", MICRO, "model", options={"without": "gradients"}),
    *(Ablation(f"packed state of {hook}", STEP, "model", _of(hook, "packed"))
      for hook in ("zscore", "probs_grad", "level", "spike")),
    *(Ablation(f"packed state of {hook}", STEP, "progress", _of(hook, "packed")) for hook in ("level_eval", "brittle")),
    *(Ablation(f"free state of {hook}", STEP, "model", _of(hook, "free")) for hook in ("average", "center")),
    Ablation("free state of center_eval", STEP, "progress", _of("center_eval", "free")),
    Ablation("generator of noise", STEP, "model", _of("noise", "generators")),
    Ablation("generator of noise, in the middle of a step", MICRO, "model", _of("noise", "generators")),
    Ablation("pending state of level", between("micro", "update"), "model", _of("level", "pending")),
    Ablation("pending free state of center", between("micro", "update"), "model", _of("center", "pending_free")),
    Ablation("pending state of level_eval", EVALUATED, "progress", _of("level_eval", "pending")),
    Ablation("pending free state of center_eval", EVALUATED, "progress", _of("center_eval", "pending_free")),
    *(Ablation(f"partial results of {hook}", EVALUATED, "progress", _partials(hook)) for hook in ("outputs", "probs")),
    Ablation("partial results of grads", MICRO, "progress", _partials("grads")),
    Ablation("clock: step", STEP, "model", _clock(step=0)),
    Ablation("clock: forwards in training", lambda run: MICRO(run) and run.rig._attached_hook("jitter").active, "model",
             _clock(counts=[0, 0])),
    Ablation("clock: forwards in evaluation", between("evaluate", "evaluate"), "progress", _clock(counts=[0, 0])),
    Ablation("clock: accumulated", between("micro", "abandon"), "progress", _clock(accumulated=False)),
    Ablation("clock: tripped", lambda run: STEP(run) and run.rig._clock.tripped == run.step - 1, "model",
             _clock(tripped=-1)),
    Ablation("clock: last forward", between("evaluate", "peek"), "progress", _clock(now=StepClock(bool).passes.now)),
    Ablation("tensor parameter", STEP, "model", options={"tensors": {"direction": torch.zeros(DIM)}}),
    Ablation("mute", lambda run: run.rig._attached_hook("damp").status.is_muted, "model",
             lambda rig: rig.unmute("damp")),
    Ablation("mute by failure", lambda run: run.rig.ledger["brittle"].failed > 0, "progress",
             lambda rig: rig.unmute("brittle")),
    Ablation("ledger", STEP, "hooks", _counters),
    Ablation("steps due", STEP, "hooks", _due),
    Ablation("step counted last", lambda run: STEP(run) and run.step > 8, "hooks", _counted),
]  # fmt: skip


class Trail:
    """Save a run at every point of its first steps."""

    def __init__(self, folder: Path, *, start: int = 4, steps: int = 12) -> None:
        live = Run()
        live.attach()
        self.folder = folder
        #: the state at each point
        self.bits: list[dict[str, tuple[str, bytes]]] = []
        #: the point at which each ablation is tried
        self.places: dict[str, int] = {}
        while live.step < steps:
            if live.step >= start:
                point = len(self.bits)
                CONTAINERS["safetensors"].save(live, self.path(point))
                self.bits.append(live.bits())
                for one in ABLATIONS:
                    if one.where(live):
                        self.places.setdefault(one.what, point)
            live.advance()
        self.bits.append(live.bits())
        self.rig = live.rig

    def path(self, point: int) -> Path:
        return self.folder / f"{point}.safetensors"

    def first_difference(self, one: Ablation) -> int | None:
        """Return after how many parts the ablation shows in the expected component; None if it never does."""
        point = self.places[one.what]
        for later, wrong in self.follow(point, one):
            if any(name.split("/")[0] == one.shows_in for name in wrong):
                return later
        return None

    def follow(self, point: int, one: Ablation | None = None) -> Iterator[tuple[int, list[str]]]:
        """Yield the differences at each later point."""
        with resumed(self.path(point), "safetensors", "restore", **(one.options if one else {})) as run:
            if one is not None and one.drop is not None:
                one.drop(run.rig)
            for later, then in enumerate(self.bits[point + 1 :], start=1):
                run.advance()
                yield later, differences(then, run.bits())
