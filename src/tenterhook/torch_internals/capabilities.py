"""Find private attributes of torch. If this torch does not have one, the capabilities that need it are disabled.

An attribute that is read in every step is looked up once, with `find`. All other attributes are read inside a function
that `needed_for` decorates. Neither fails when tenterhook is imported. `require` refuses a disabled capability by name.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from enum import Enum
from functools import wraps
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

import torch

from tenterhook.errors import RefusedError
from tenterhook.torch_internals.torch_version import FLOOR, TESTED, as_text

P = ParamSpec("P")
R = TypeVar("R")


class Capability(Enum):
    """A part of tenterhook that needs private attributes of torch. The value completes "torch cannot support …"."""

    BACKWARD = "the points of the backward pass"
    MODULE_GRADS = "the points grad_output, grad_input and value_grad"
    GRAD_INPUT = "the point grad_input"
    TAPS = "taps"
    FUNCTIONS = "functions as actions, because their in-place changes cannot be detected"
    CHECKPOINTS = "hooks inside activation checkpoints"
    NO_OPTIMIZER = "rigs without an optimizer, because the end of a backward pass cannot be detected"
    SEVERAL_RIGS = "several rigs on one model"
    COMPILED = "hooks on compiled models"
    RANKS = "training on several ranks"
    GATHERED = "the points grad and grad_accumulated with FSDP2"
    PIPELINES = "pipeline stages"
    INVENTORY = "th.inventory"
    DOCTOR = "the doctor"
    RERUN = "running a step again to examine it"
    SHARDED_EXAM = "the doctor's checks of sharded models"
    COMPILED_EXAM = "the doctor's checks of compiled code"


#: by disabled capability: the private attributes that this torch does not have
disabled: dict[Capability, list[str]] = {}


def find(path: str, *lost: Capability, otherwise: Any = None, within: ModuleType = torch) -> Any:
    """Return a private attribute of torch.

    Args:
        path: The attribute, such as `"torch._C._current_graph_task_id"`.
        lost: The capabilities that are disabled if torch does not have the attribute.
        otherwise: What to return in that case.
        within: A module on the path that cannot be reached from `torch`, because torch deletes its name.
    """
    try:
        return _look_up(path, within)
    except AttributeError:
        _disable(lost, path)
        return otherwise


def _look_up(path: str, within: ModuleType = torch) -> Any:
    found: Any = within
    for name in path.removeprefix(f"{within.__name__}.").split("."):
        found = getattr(found, name)
    return found


def look_for(example: object, name: str, *lost: Capability) -> bool:
    """Disable capabilities and return False if an object lacks an attribute that its class sets in `__init__`."""
    if hasattr(example, name):
        return True
    _disable(lost, f"{type(example).__name__}.{name}")
    return False


def _disable(lost: tuple[Capability, ...], name: str) -> None:
    for capability in lost:
        absent = disabled.setdefault(capability, [])
        if name not in absent:
            absent.append(name)


def entry(path: str, *lost: Capability) -> tuple[Any, str]:
    """Return the owner and the name of a private function that is to be replaced. The arguments are those of `find`."""
    owner, _, name = path.rpartition(".")
    return None if find(path, *lost) is None else _look_up(owner), name


def needed_for(capability: Capability, **otherwise: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function that reads private attributes, so that an absent one refuses the capability by name.

    Args:
        capability: What the function is needed for.
        otherwise: What the function returns if an attribute is absent. A warning names the capability. Without this
            argument, the function raises `RefusedError`.
    """

    def decorate(fn: Callable[P, R]) -> Callable[P, R]:
        @wraps(fn)
        def read(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return fn(*args, **kwargs)
            except (AttributeError, ImportError) as error:
                _disable((capability,), str(error))
                if not otherwise:
                    raise _refused(capability) from error
                warn_of(capability)
                result: R = otherwise["otherwise"]
                return result

        return read

    return decorate


def require(*capabilities: Capability) -> None:
    """Raise an error if one of the capabilities is disabled.

    Raises:
        RefusedError: This torch lacks a private attribute that the capability needs.
    """
    for capability in capabilities:
        if capability in disabled:
            raise _refused(capability)


def warn_of(capability: Capability) -> None:
    """Warn if a capability is disabled, once."""
    if capability in disabled and capability not in _warned:
        _warned.add(capability)
        if os.environ.get("RANK", "0") == "0":  # one warning from all ranks
            warnings.warn(str(_refused(capability)), RuntimeWarning, stacklevel=4)


_warned: set[Capability] = set()


def _refused(capability: Capability) -> RefusedError:
    return RefusedError(
        f"torch {torch.__version__} cannot support {capability.value} (not found: {', '.join(disabled[capability])})",
        remedy=f"use torch {as_text(FLOOR)} to {as_text(TESTED)}, or a newer version of tenterhook",
    )
