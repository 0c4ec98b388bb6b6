"""Import the modules and functions that command-line arguments name, including those in the current folder."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tenterhook.errors import ResolveError


def add_actions_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--actions",
        metavar="MODULE",
        action="append",
        default=[],
        help="module that registers actions for the plan, imported before the plan is used; can be repeated",
    )


def import_actions(args: argparse.Namespace) -> None:
    """Import the modules that --actions names, so that they register their actions."""
    remedy = "pass --actions package.module, a module in the current folder or an installed one"
    for name in args.actions:
        import_module(name, f"--actions {name}", remedy=remedy)


def import_function(where: str, asked: str, *, remedy: str) -> Callable[[], Any]:
    """Import the function that `package.module:function` names. Error messages quote the argument `asked`."""
    module, colon, name = where.partition(":")
    if not colon:
        raise ResolveError(f"{asked} does not name a function", remedy=remedy)
    found: Callable[[], Any] | None = getattr(import_module(module, asked, remedy=remedy), name, None)
    if found is None:
        raise ResolveError(f"{asked}: {module} has no function {name}", remedy=remedy)
    return found


def import_module(name: str, asked: str, *, remedy: str) -> ModuleType:
    """Import a module, or raise a ResolveError."""
    before = sys.path[:]
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ResolveError(f"{asked}: {error}", remedy=remedy) from error
    finally:
        sys.path[:] = before
