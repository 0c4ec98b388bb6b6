"""Determine whether code belongs to the program, to a library or to tenterhook."""

from __future__ import annotations

import sysconfig
from functools import partial
from pathlib import Path
from typing import Any

import torch

_LIBRARIES = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {str(Path(torch.__file__).parent.parent)}
)
_OURS = str(Path(__file__).parents[1])
#: common names of torch components, keyed by the module that defines their hooks
_PARTS = {
    "torch.nn.parallel.distributed": "DDP",
    "torch.distributed.algorithms": "DDP",
    "torch.distributed.fsdp": "FSDP",
    "torch.distributed._composable": "FSDP",
    "torch.distributed.tensor": "tensor parallel",
    "torch.distributed.pipelining": "pipeline parallel",
    "torch.nn.utils.prune": "prune",
}


PROGRAM = "the program"


def is_users(path: str) -> bool:
    """Return True if a file belongs to the user, not to a library or tenterhook."""
    return not path.startswith((*_LIBRARIES, _OURS, "<frozen"))


def is_ours(path: str) -> bool:
    """Return True if a file belongs to tenterhook."""
    return path.startswith(_OURS)


def owner_of(fn: Any) -> str:
    """Return the name of the library that defines a function, such as DDP, FSDP or accelerate, or "the program"."""
    while isinstance(fn, partial):
        fn = fn.func
    module = getattr(fn, "__module__", None) or type(fn).__module__
    for part, name in _PARTS.items():
        if module == part or module.startswith(f"{part}."):
            return name
    code = getattr(fn, "__code__", None) or getattr(vars(type(fn)).get("__call__"), "__code__", None)
    if code is not None and is_users(code.co_filename):
        return PROGRAM
    return str(module).partition(".")[0]
