"""Run on a device what the tests run on the CPU: the matrix, training steps that must not wait, and the benchmarks."""

from __future__ import annotations

import contextlib
import io
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

import tenterhook as th
from benchmarks import cost, record
from benchmarks.gpt import SIZES, Size, Training
from tenterhook.plan import POINTS
from tests.support.devices import simulated
from tests.support.devices.cases import ACTIONS, case_of, cases
from tests.support.devices.forms import FORMS
from tests.support.devices.programs import hook, train
from tests.support.rig.matrix import MARKS, check
from tests.support.rig.regimes import REGIMES

ROOT = Path(__file__).parents[3]
#: what `check` raises for a cell that does not hold; pytest's own error is not an Exception
FAILURES = (Exception, pytest.fail.Exception)


def absent(device: str) -> str | None:
    """Return why a device cannot be used, or None."""
    if device in ("cpu", simulated.NAME) or torch.get_device_module(device).is_available():
        return None
    return f"torch {torch.__version__} finds no device {device!r} on this machine"


def heading(device: str) -> list[str]:
    name = getattr(torch.get_device_module(device), "get_device_name", lambda: device)()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    what = f"{name} (`{device}`), torch {torch.__version__}, commit {commit.strip() or 'unknown'}"
    return ["# Results on a device", "", f"`scripts/gpu-truth` wrote this page on {what}."]


# -- the matrix --------------------------------------------------------------------------------------------------------


def matrix(device: str, *, few: bool) -> Iterator[str]:
    """Run the cells of the first table of docs/matrix.md on a device."""
    points, regimes = (list(POINTS)[::5], list(REGIMES)[:2]) if few else (list(POINTS), list(REGIMES))
    found = {(point, regime): _cell(point, regime, device) for regime in regimes for point in points}
    failed = {cell: why for cell, why in found.items() if why not in MARKS.values()}
    yield from ("## The matrix", "", f"{len(found)} cells, {len(failed)} failed.", "")
    yield "| regime | " + " | ".join(f"`{point}`" for point in points) + " |"
    yield "|---" * (len(points) + 1) + "|"
    for regime in regimes:
        marks = ("**failed**" if (point, regime) in failed else found[point, regime] for point in points)
        yield f"| {regime} | " + " | ".join(marks) + " |"
    yield ""
    for (point, regime), why in failed.items():
        yield f"- {regime}, `{point}`: {why}"


def _cell(point: str, regime: str, device: str) -> str:
    try:
        with torch.device(device):
            return MARKS[check(point, regime).word]
    except FAILURES as error:
        return _first_line(error)


# -- steps that must not wait ------------------------------------------------------------------------------------------


def steps(device: str, *, few: bool) -> Iterator[str]:
    """Run training steps in which PyTorch raises an error if the thread waits for the device."""
    some = list(cases())[:: 40 if few else 1]
    ran = {f"`{action}` at `{point}`": _why_not(hook(ACTIONS[action](device), point), device) for action, point in some}
    programs = {name: form for name, form in FORMS.items() if form.waits == 0}
    ran |= {
        name: _why_not(form.attach, device, form.make) for name, form in list(programs.items())[: 1 if few else None]
    }
    failed = {name: why for name, why in ran.items() if why is not None}
    yield from ("## Steps that do not wait", "")
    yield f"{len(ran)} trainings of four steps, {len(failed)} in which a step waited or a hook failed."
    if torch.device(device).type != "cuda":
        yield "Only `cuda` and the simulated device notice that a thread waits."
    yield ""
    for name, why in failed.items():
        yield f"- {name}: {why}"


def _why_not(
    attach: Callable[..., th.Rig | None], device: str, make: Callable[..., torch.nn.Module] | None = None
) -> str | None:
    """Return why a training is not as it should be, or None."""
    try:
        outcome = train(attach, device, make=make, around=partial(error_if_it_waits, device))
    except Exception as error:
        return _first_line(error)
    if outcome.lost:
        return "; ".join(outcome.lost)
    found = case_of("", "", outcome, outcome)
    return f"{found.waits} waits: {'; '.join(found.places)}" if found.waits else None


@contextlib.contextmanager
def error_if_it_waits(device: str) -> Iterator[None]:
    """Let PyTorch raise an error if the thread waits for a CUDA device."""
    if torch.device(device).type != "cuda":
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


# -- benchmarks --------------------------------------------------------------------------------------------------------

VARIANTS: dict[str, Callable[[Training], object]] = {
    "bare": lambda training: None,
    "th.watch": lambda training: th.watch(training.model, training.optimizer),
    "th.watch into a store": lambda training: th.watch(
        training.model, training.optimizer, sinks=th.Store(tempfile.mkdtemp())
    ),
    "th.flight": lambda training: th.flight(training.model, training.optimizer, tempfile.mkdtemp()),
    'th.flight(trip="late")': lambda training: th.flight(
        training.model, training.optimizer, tempfile.mkdtemp(), trip="late"
    ),
}

#: the names of the variants of `benchmarks.record` that need no other tool begin with these words
OURS = ("bare", "limit", "tenterhook")


def benchmarks(device: str, *, few: bool) -> Iterator[str]:
    """Measure wall time, and run `benchmarks.cost` and `benchmarks.record`, which measure the time of the CPU."""
    yield from ("## Benchmarks", "")
    for name in ["0.33M"] if few else ["0.33M", "26M"]:
        yield from _wall(name, SIZES[name], device, rounds=2 if few else 40)
    printed, ours = io.StringIO(), {name: make for name, make in record.VARIANTS.items() if name.startswith(OURS)}
    with torch.device(device), contextlib.redirect_stdout(printed):
        cost.fired(repeats=1 if few else 9)
        cost.idle(repeats=1 if few else 15)
        table = record.table("0.33M", SIZES["0.33M"], 8 if few else 120, ours)
    yield from ("`benchmarks.cost`: CPU time of the thread, which launches the kernels.", "", "```text")
    yield from (*printed.getvalue().splitlines(), "```", "", "`benchmarks.record`, also CPU time:", "", table, "")


def _wall(name: str, size: Size, device: str, rounds: int) -> Iterator[str]:
    """Measure blocks of ten steps, in alternating order. Before and after each, the thread waits for the device."""
    trainings = {}
    with torch.device(device):
        for variant, attach in VARIANTS.items():
            trainings[variant] = Training(size)
            attach(trainings[variant])
        times: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
        for _ in range(rounds):
            for variant, training in trainings.items():
                training.step()
                _wait_for(device)
                start = time.perf_counter()
                for _ in range(10):
                    training.step()
                _wait_for(device)
                times[variant].append((time.perf_counter() - start) / 10)
    bare = statistics.median(times["bare"])
    yield from (f"Wall time of a step of the model {name}:", "", "| variant | ms | relative to bare |", "|---|---|---|")
    for variant, taken in times.items():
        yield f"| {variant} | {statistics.median(taken) * 1e3:.2f} | {statistics.median(taken) / bare:.3f} |"
    yield ""


def _wait_for(device: str) -> None:
    if device not in ("cpu", simulated.NAME):
        torch.get_device_module(device).synchronize()


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"


PARTS: dict[str, Callable[..., Iterator[str]]] = {"matrix": matrix, "steps": steps, "benchmarks": benchmarks}
