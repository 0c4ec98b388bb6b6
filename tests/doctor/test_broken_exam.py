"""Break each function of the exam in turn, and check that the program does not notice."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest
import torch
from torch import nn

import tenterhook as th
from tenterhook.doctor import observe, patch, rules
from tenterhook.doctor.patch.exam_errors import ExamErrors
from tests.support.doctor.visible import story
from tests.support.slices import sliced

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

#: these contain the errors of the others, or are what Python itself calls
LEFT_OUT = {
    *(f"patch.exam_errors.{name}" for name in ("text_of", *(f"ExamErrors.{name}" for name in vars(ExamErrors)))),
    "patch.calls.code_calls._profile",
    "patch.calls.code_calls.OpenCalls.begin",
    "patch.calls.code_calls.OpenCalls.end",
    "patch.calls.code_calls.MonitoredCalls._started",
    "patch.calls.code_calls.MonitoredCalls._returned",
    "patch.calls.code_calls.MonitoredCalls._raised",
}
#: without these, no call is observed, so the wrapper around the backward pass stays on the stack
OPENING = {
    "observe.model_index.caller",
    "patch.calls.attribution.called_code",
    "patch.calls.code_calls.ProfiledCalls.start",
    "patch.calls.code_calls.MonitoredCalls.start",
    "patch.recording.Recording._new",
    "patch.sight.HookSight._open",
    "patch.sight.HookSight.observable",
}


class BrokenError(Exception):
    """Raised by the function that is broken."""


def functions() -> Iterator[tuple[str, Any, str, FunctionType]]:
    """Yield each function of the exam: its name, its owner, its name in the owner, and the function."""
    for package in (observe, patch, rules):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(info.name)
            short = info.name.removeprefix("tenterhook.doctor.")
            for name, value in vars(module).items():
                if inspect.isfunction(value) and value.__module__ == info.name:
                    yield f"{short}.{name}", module, name, value
                elif inspect.isclass(value) and value.__module__ == info.name:
                    for key, method in vars(value).items():
                        if inspect.isfunction(method) and not key.startswith("__"):
                            yield f"{short}.{name}.{key}", value, key, method


FUNCTIONS = {name: rest for name, *rest in functions() if name not in LEFT_OUT}


def program(seed: int) -> list[Any]:
    """Do what a program does with hooks, and return everything that it can see."""
    seen = story(seed)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    kept: dict[str, Any] = {}
    model[0].register_forward_hook(lambda module, args, out: kept.update(out=out.detach()))
    model[0].register_full_backward_hook(lambda module, inputs, outputs: None)
    model[0].weight.register_hook(lambda grad: grad * 0.5)
    model[2].weight.register_hook(kept.get)
    optimizer.register_step_pre_hook(lambda *args: None)
    torch.autograd.graph.register_multi_grad_hook(list(model.parameters()), lambda grads: None)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for _ in range(3):
        hidden = model[:2](torch.ones(2, 3))
        handle = hidden.register_hook(lambda grad: grad * 2)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (t,), lambda packed: packed[0]):
            loss = model[2](hidden).sum()
        scaler.scale(loss).backward()
        handle.remove()
        scaler.unscale_(optimizer)
        seen.append(float(nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return [*seen, *(p.tolist() for p in model.parameters()), kept["out"].tolist()]


def without_wrappers(seen: Any) -> Any:
    """Leave out the frames of the exam's wrappers."""
    if isinstance(seen, list | tuple):
        return type(seen)(without_wrappers(one) for one in seen if one != "call")
    return seen


@pytest.fixture(scope="module")
def bare() -> list[Any]:
    return program(0)


@pytest.mark.parametrize("name", sliced(sorted(FUNCTIONS), 12))
def test_an_error_of_the_exam_does_not_reach_the_program(name, bare, monkeypatch):
    owner, key, function = FUNCTIONS[name]
    called = []

    def broken(*args: Any, **kwargs: Any) -> Any:
        called.append(name)
        raise BrokenError(name)

    exam = th.examine()
    with exam:
        with monkeypatch.context() as patched:
            for module in [m for n, m in sys.modules.items() if n.startswith("tenterhook.doctor")]:
                if vars(module).get(key) is function:
                    patched.setattr(module, key, broken)
            if inspect.isclass(owner):
                patched.setattr(owner, key, broken)
            examined = program(0)
    assert (without_wrappers(examined) if name in OPENING else examined) == bare
    assert not called or "TH608" in exam.findings.codes
