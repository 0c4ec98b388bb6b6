"""Run random sequences of hook operations, and describe everything that a program can see of its hooks.

An exam must not change the description. `story` shares no code with the doctor.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import io
import pickle
import random
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

MODULE = {
    "register_forward_pre_hook": "_forward_pre_hooks",
    "register_forward_hook": "_forward_hooks",
    "register_full_backward_pre_hook": "_backward_pre_hooks",
    "register_full_backward_hook": "_backward_hooks",
    "register_state_dict_pre_hook": "_state_dict_pre_hooks",
    "register_load_state_dict_post_hook": "_load_state_dict_post_hooks",
}
TENSOR = {
    "register_hook": "_backward_hooks",
    "register_post_accumulate_grad_hook": "_post_accumulate_grad_hooks",
}
OPTIMIZER = {
    "register_step_pre_hook": "_optimizer_step_pre_hooks",
    "register_step_post_hook": "_optimizer_step_post_hooks",
}
CLASSES = (types.FunctionType, types.MethodType, functools.partial, Callable)
#: what the hooks of the running story have seen
SEEN: list[Any] = []


def note(label: str, args: tuple[Any, ...]) -> None:
    """Write down the call of a hook, with the functions on the stack above it."""
    frame, names = sys._getframe(2), []
    while frame is not None and frame.f_code.co_name != "story":
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    SEEN.append((label, [type(one).__name__ for one in args], names, sys.gettrace() is None))


def plain(*args: Any) -> None:
    note("plain", args)


def with_default(first: Any, *args: Any, factor: float = 2.0) -> None:
    note(f"default {factor}", (first, *args))


def decorated(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def call(*args: Any) -> Any:
        return fn(*args)

    return call


class Watcher:
    """An object with methods that are used as hooks."""

    def __init__(self, name: str) -> None:
        self.name = name

    def method(self, *args: Any) -> None:
        note(f"method of {self.name}", args)

    @staticmethod
    def static(*args: Any) -> None:
        note("static", args)

    @classmethod
    def of_class(cls, *args: Any) -> None:
        note("class", args)

    def __call__(self, *args: Any) -> None:
        note(f"object {self.name}", args)


class Raising:
    """A hook that raises an error which it partly handles."""

    def __call__(self, *args: Any) -> None:
        with contextlib.suppress(ZeroDivisionError):
            _ = 1 // 0
        note("raising", args)
        raise KeyError("told")


def closures(count: int) -> list[Callable[..., None]]:
    """Return functions that share one code object."""

    def make(number: int) -> Callable[..., None]:
        def hook(*args: Any) -> None:
            note(f"closure {number}", args)

        return hook

    return [make(number) for number in range(count)]


def callables() -> list[Callable[..., Any]]:
    watcher = Watcher("a")
    return [
        plain,
        with_default,
        lambda *args: note("lambda", args),
        decorated(plain),
        watcher.method,
        Watcher("b").method,
        Watcher.static,
        Watcher.of_class,
        watcher,
        functools.partial(with_default, factor=3.0),
        functools.partial(plain, "given"),
        *closures(3),
    ]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.tied = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
        self.tied.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(x))
        return self.tied(self.second(hidden)) + self.second(hidden)


def story(seed: int) -> list[Any]:
    """Run a random sequence of operations, and return everything that could be seen."""
    SEEN.clear()
    rng = random.Random(seed)
    torch.manual_seed(seed)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    functions = callables()
    handles: list[tuple[Any, Any]] = []
    first = None
    for _ in range(rng.randint(8, 20)):
        what = rng.choice(["register"] * 5 + ["train"] * 3 + ["remove", "search", "copy", "pickle", "error", "direct"])
        if what == "register":
            owner, kinds = rng.choice([(model, MODULE), (model.first, MODULE), (model.second, MODULE)] * 2 + [
                (model.first.weight, TENSOR), (model.second.bias, TENSOR), (optimizer, OPTIMIZER)
            ])  # fmt: skip
            fn = rng.choice(functions)
            kind = rng.choice(sorted(kinds))
            handle = getattr(owner, kind)(fn)
            first = handle.id if first is None else first
            handles.append((handle, fn))
            SEEN.append((kind, handle.id - first, type(handle).__name__))
        elif what == "train":
            train(model, optimizer)
        elif what == "remove" and handles:
            handle, _fn = handles.pop(rng.randrange(len(handles)))
            handle.remove()
        elif what == "search":
            remove_by_identity(model, rng.choice(functions))
        elif what == "copy":
            other = copy.deepcopy(model)
            other(torch.ones(1, 2))
            SEEN.append(contents(other, functions))
        elif what == "pickle":
            SEEN.append(pickled(model))
        elif what == "error":
            SEEN.append(failing(model))
        elif what == "direct":
            rng.choice(functions)(1, 2)
        SEEN.append((what, contents(model, functions), contents_of(optimizer, OPTIMIZER, functions)))
        SEEN.append([about(fn) for fn in functions])
    SEEN.append(repr([parameter.tolist() for parameter in model.parameters()]))
    seen = list(SEEN)
    SEEN.clear()
    return seen


def train(model: Model, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    hidden = model(torch.ones(3, 2))
    hidden.register_hook(plain)
    hidden.square().sum().backward()
    optimizer.step()
    model.load_state_dict(model.state_dict())


def remove_by_identity(model: Model, fn: Any) -> None:
    """Remove the hooks that are this very function, as `torch.ao.quantization` does."""
    for module in model.modules():
        for slot in MODULE.values():
            hooks = getattr(module, slot)
            for number in [number for number, hook in hooks.items() if hook is fn or hook == fn]:
                del hooks[number]
                SEEN.append(("found", slot))


def pickled(model: Model) -> str:
    try:
        return repr(len(pickle.dumps(model)))
    except Exception as error:
        return f"{type(error).__name__}: {str(error).partition(' at 0x')[0]}"


def failing(model: Model) -> str:
    """Return the traceback of a forward pass in which a hook raises an error."""
    handle = model.first.register_forward_hook(Raising())
    try:
        model(torch.ones(1, 2))
    except KeyError:
        out = io.StringIO()
        traceback.print_exc(file=out)
        return out.getvalue()
    finally:
        handle.remove()
    return "no error"


def contents(model: Model, functions: list[Any]) -> list[Any]:
    owners = [(owner, MODULE) for owner in model.modules()] + [(p, TENSOR) for p in model.parameters()]
    return [contents_of(owner, kinds, functions) for owner, kinds in owners]


def contents_of(owner: Any, kinds: dict[str, str], functions: list[Any]) -> list[Any]:
    """Describe the dicts of hooks of one object: order, identity, equality and class of the functions."""
    found = []
    for slot in kinds.values():
        for hook in (getattr(owner, slot) or {}).values():
            which = [number for number, fn in enumerate(functions) if hook is fn]
            equal = [number for number, fn in enumerate(functions) if hook == fn]
            classes = [isinstance(hook, one) for one in CLASSES]
            found.append((slot, which, equal, type(hook).__name__, classes, callable(hook), hash(hook) == hash(hook)))
    return found


def about(fn: Any) -> Any:
    code = getattr(fn, "__code__", None)
    source = inspect.getsource(fn) if inspect.isfunction(fn) or inspect.ismethod(fn) else ""
    bytecode = code.co_code if code is not None else b""
    return str(inspect.signature(fn)), source, bytecode, sorted(getattr(fn, "__dict__", {})), copy.copy(fn) == fn
