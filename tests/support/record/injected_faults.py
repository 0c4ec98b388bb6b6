"""Make every function on the recording path fail during training, and compare the training with a bare run.

    python -m tests.support.record.injected_faults                  # all functions, all errors
    python -m tests.support.record.injected_faults --every 8        # every eighth case
    python -m tests.support.record.injected_faults Recorder.flush   # the cases whose names contain this text

The functions are found by inspecting the modules, so a new function is included at once. The injector knows nothing
of how errors are contained.
"""

from __future__ import annotations

import importlib
import inspect
import io
import pkgutil
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

import tenterhook as th
from tenterhook import record, verdict
from tenterhook.rig import rerun
from tenterhook.verdict import watch_training

ERRORS: dict[str, Callable[[], BaseException]] = {
    "Exception": lambda: Exception("injected"),
    "MemoryError": lambda: MemoryError("injected"),
    "OSError": lambda: OSError(28, "injected"),
    "SystemExit": lambda: SystemExit("injected"),
}
#: the boundary itself, and the functions that torch calls and that only call it
NOT_INJECTED = ("tenterhook.record.containment",)
BOUNDARY = ("CallLog._begin", "CallLog._end", "call_log._keep", "StepWatch._pre", "StepWatch._post",
            "LossWatch.before", "LossWatch.after", "Examiner._forget")  # fmt: skip
#: modules with actions; an action that calls sys.exit() ends the program, because this is what it asks for
STATISTICS = ("tenterhook.actions.stats", "tenterhook.actions.observe", "tenterhook.actions.row_measures",
              "tenterhook.actions.batched")  # fmt: skip
STEPS = 6
#: seconds after which a run counts as hanging
TOO_LONG = 20.0


@dataclass(frozen=True)
class Case:
    """One function that fails with one error, at its first call or at every call."""

    owner: Any
    name: str
    error: str
    always: bool

    def __str__(self) -> str:
        owner = self.owner.__name__.removeprefix("tenterhook.")
        return f"{owner}.{self.name} raises {self.error} {'always' if self.always else 'once'}"


@dataclass(frozen=True)
class Verdict:
    case: Case
    called: bool
    fault: str | None


def modules() -> Iterator[ModuleType]:
    for package in (record, rerun, verdict):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if info.name not in NOT_INJECTED:
                yield importlib.import_module(info.name)
    yield from map(importlib.import_module, STATISTICS)


def functions() -> Iterator[tuple[Any, str]]:
    """Yield the owner and the name of each function, method and property that the recording modules define."""
    for owner, name in _defined():
        if f"{owner.__name__.rpartition('.')[2]}.{name}" not in BOUNDARY:
            yield owner, name


def _defined() -> Iterator[tuple[Any, str]]:
    for module in modules():
        for name, value in sorted(vars(module).items()):
            if isinstance(value, FunctionType) and value.__module__ == module.__name__:
                yield module, name
            elif inspect.isclass(value) and value.__module__ == module.__name__:
                for member, raw in sorted(vars(value).items()):
                    plain = getattr(raw, "fget", getattr(raw, "__func__", raw))
                    if isinstance(plain, FunctionType) and member not in ("__repr__", "__eq__", "__hash__"):
                        yield value, member


def cases() -> list[Case]:
    return [
        Case(owner, name, error, always)
        for owner, name in functions()
        for error in ERRORS
        for always in (False, True)
        if error != "SystemExit" or getattr(owner, "__module__", owner.__name__) not in STATISTICS
    ]


class Injection:
    """Replaces a function with one that fails while the injection is armed."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.armed = False
        self.calls = 0
        self._original = vars(case.owner)[case.name]
        self._others = [
            module
            for name, module in list(sys.modules.items())
            if name.startswith("tenterhook.")
            and isinstance(case.owner, ModuleType)
            and vars(module).get(case.name) is self._original
        ]

    def __enter__(self) -> Injection:
        raw = self._original
        plain = getattr(raw, "fget", getattr(raw, "__func__", raw))

        def failing(*args: Any, **kwargs: Any) -> Any:
            if self.armed:
                self.calls += 1
                if self._case.always or self.calls == 1:
                    raise ERRORS[self._case.error]()
            return plain(*args, **kwargs)

        new: Any = failing
        if isinstance(raw, property):
            new = property(failing)
        elif isinstance(raw, staticmethod | classmethod):
            new = type(raw)(failing)
        for owner in self._others or [self._case.owner]:
            setattr(owner, self._case.name, new)
        return self

    def __exit__(self, *args: object) -> None:
        for owner in self._others or [self._case.owner]:
            setattr(owner, self._case.name, self._original)


def train(folder: Path | None, injection: Injection | None = None) -> list[torch.Tensor]:
    """Train a small model, and return its losses and weights. With a folder, record everything that can be recorded."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses: list[torch.Tensor] = []
    rig = None
    if folder is not None:
        hooks = [
            th.Hook("grads", on="**", at="grad_final", do=th.stats()),
            th.Hook("shape", on="**", at="grad_final", do=th.histogram()),
            th.Hook("bad", on="**", at="grad", do=th.watch_nonfinite()),
            th.Hook("kept", on="0.weight", at="grad", do=th.capture()),
            th.Hook("clip", on="**", at="grad_final", do=th.clip_value(1e6)),
            th.Hook("own", on="0", at="output", do=measure()),
        ]
        sinks: list[Any] = [th.Store(folder / "run", linger=0.0, close_timeout=0.5), lambda values, step: None]
        sinks.append(th.Flight(folder / "flights", steps=2))
        rig = th.attach(model, hooks, optimizer=optimizer, sinks=sinks)
        watch_training(rig, [optimizer], alert=lambda verdict: None)
    if injection is not None:
        injection.armed = True
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(torch.randn(5, 3)).square().mean()
        (loss * float("inf") if step == 3 else loss).backward()
        if step == 3:
            optimizer.zero_grad()
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        losses.append(loss.detach())
    if rig is not None:
        rig.flush()
        rig.detach()
    return [*losses, *(p.detach() for p in model.parameters())]


@th.action("measure-for-injection", at=["output"], modifies=False)
def measure(x: torch.Tensor, ctx: th.Context) -> None:
    ctx.emit("mean", x.mean())


def run(case: Case, bare: list[torch.Tensor]) -> Verdict:
    """Run one case, and compare it with the bare run."""
    fault = None
    start, before = time.monotonic(), set(threading.enumerate())
    with tempfile.TemporaryDirectory() as place, Injection(case) as injection, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with redirect_stderr(io.StringIO()):
                found = train(Path(place), injection)
            if not all(map(torch.equal, found, bare)):
                fault = "the training differs"
        except BaseException as error:
            fault = f"training was stopped by {error!r}"
        injection.armed = False
        if time.monotonic() - start > TOO_LONG:
            fault = f"the run took {time.monotonic() - start:.0f} seconds"
        for thread in set(threading.enumerate()) - before:  # other tests may have left theirs
            thread.join(30.0)  # on a busy machine a sink may still write
    return Verdict(case, injection.calls > 0, fault)


def main(arguments: list[str]) -> int:
    every = int(arguments.pop(arguments.index("--every") + 1)) if "--every" in arguments else 1
    words = [word for word in arguments if word != "--every"]
    bare = train(None)
    chosen = [case for case in cases() if all(word in str(case) for word in words)][::every]
    unreached: set[tuple[Any, str]] = set()
    reached, faults = [], 0
    for case in chosen:
        if (case.owner, case.name) in unreached:
            continue
        verdict = run(case, bare)
        if not verdict.called:
            unreached.add((case.owner, case.name))
            continue
        reached.append(case)
        if verdict.fault:
            faults += 1
            print(f"{case}: {verdict.fault}", flush=True)
    names = {(case.owner, case.name) for case in reached}
    print(f"{len(reached)} injections into {len(names)} functions, {faults} faults; "
          f"{len(unreached)} functions are not called during training")  # fmt: skip
    return 1 if faults else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    raise SystemExit(main(sys.argv[1:]))
