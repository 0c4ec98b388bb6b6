"""Import the modules and functions that command-line arguments name, including those in the current folder."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from tenterhook.errors import ResolveError, nearest


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


def import_function(where: str, asked: str, *, remedy: str) -> Callable[..., Any]:
    """Import the function that `package.module:function` names. Error messages quote the argument `asked`."""
    module, colon, name = where.partition(":")
    if not colon:
        if where.endswith(".py"):
            remedy = (
                f"name the module without .py, and the function: {where.removesuffix('.py').replace('/', '.')}:factory"
            )
        raise ResolveError(f"{asked} does not name a function", remedy=remedy)
    owner = import_module(module, asked, remedy=remedy, function=f":{name}")
    found: Callable[..., Any] | None = getattr(owner, name, None)
    if not callable(found):
        functions = [one for one, value in vars(owner).items() if callable(value) and not one.startswith("_")]
        close = nearest(name, functions, 1)
        raise ResolveError(
            f"{asked}: {module} has no function {name!r}",
            remedy=f"write {module}:{close[0]}" if close else f"name one of its functions: {', '.join(functions[:5])}",
        )
    return found


def import_module(name: str, asked: str, *, remedy: str, function: str = "") -> ModuleType:
    """Import a module, or raise a ResolveError. A remedy that names another module adds `function` to it."""
    before = sys.path[:]
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ImportError as error:
        as_module = name.removesuffix(".py").replace("/", ".").strip(".")
        instead = (
            f"write the module without .py: {as_module}{function}" if name.endswith(".py") or "/" in name else remedy
        )
        if name.partition(".")[0].rpartition("/")[2] not in str(error):
            instead = f"correct the import in {name}"
        elif instead is remedy:
            close = nearest(name, [one.stem for one in Path.cwd().glob("*.py")], 1)
            instead = (
                f"write {asked.partition(' ')[0]} {close[0]}{function}"
                if close
                else "name an installed module, or one in the current folder"
            )
        raise ResolveError(f"{asked}: {error}", remedy=instead) from error
    finally:
        sys.path[:] = before


def module_exists(name: str) -> bool:
    """Return True if the module, or the package that contains it, can be imported from the current folder."""
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.util.find_spec(name.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False
    finally:
        sys.path.pop(0)
