"""Code that a command is told to load, by name: it is looked for in this folder, too."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tenterhook.errors import ResolveError


def add_actions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--actions", metavar="MODULE", action="append", default=[],
        help="import it first: it has the @th.action that the plan names; may be given again",
    )  # fmt: skip


def load_actions(given: argparse.Namespace) -> None:
    for name in given.actions:
        load(name, f"--actions {name}", remedy="--actions package.module, whose file is in this folder or installed")


def load_function(where: str, asked: str, *, remedy: str) -> Callable[[], Any]:
    """Of `package.module:function`."""
    module, colon, name = where.partition(":")
    if not colon:
        raise ResolveError(f"{asked} names no function", remedy=remedy)
    found: Callable[[], Any] | None = getattr(load(module, asked, remedy=remedy), name, None)
    if found is None:
        raise ResolveError(f"{asked}: {module} has no function {name}", remedy=remedy)
    return found


def load(name: str, asked: str, *, remedy: str) -> ModuleType:
    before = sys.path[:]
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ResolveError(f"{asked}: {error}", remedy=remedy) from error
    finally:
        sys.path[:] = before
