"""Define the arguments of the commands that run a script."""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

from tenterhook.cli.imports import module_exists
from tenterhook.errors import nearest_file

NO_MODULE = "name an installed module or one in the current folder; for a file, leave out -m"


def add_script_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-m", dest="module", action="store_true", help="treat the script argument as a module name, not as a path"
    )
    parser.add_argument("script", help="script to run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments for the script")


def report_missing_script(command: str, args: argparse.Namespace) -> bool:
    """Print an error and return True if the script does not exist, otherwise return False."""
    _note_own_options(command, args)
    if args.module:
        path = args.script.removesuffix(".py").replace(".", "/") + ".py"
        if module_exists(args.script) and not args.script.endswith(".py"):
            return False
        remedy = f"to run a file, write tenterhook {command} {path}" if os.path.exists(path) else NO_MODULE
        print(f"tenterhook {command}: no module is named {args.script!r}\n  remedy: {remedy}", file=sys.stderr)
        return True
    if os.path.isfile(args.script):
        return False
    if os.path.isdir(args.script) and os.path.exists(os.path.join(args.script, "__main__.py")):
        return False
    kind, remedy = "does not exist", "pass the path of a Python script"
    if os.path.isdir(args.script):
        kind = "is a folder, not a script"
    elif close := nearest_file(Path(args.script)):
        remedy = f"write tenterhook {command} {close}"
    print(f"tenterhook {command}: the file {args.script!r} {kind}\n  remedy: {remedy}", file=sys.stderr)
    return True


def _note_own_options(command: str, args: argparse.Namespace) -> None:
    """Print a note if an option of the command follows the script, and the script does not seem to have it."""
    own = set(re.findall(r"--[\w-]+", args.parser.format_help())) - {"--help"}
    try:
        script = Path(args.script).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for word in args.arguments:
        option = word.partition("=")[0]
        if option in own and option not in script:
            print(
                f"tenterhook {command}: {option} follows the script, so the script receives it\n"
                f"  remedy: write it before the script: tenterhook {command} {option} ... {args.script}",
                file=sys.stderr,
            )
