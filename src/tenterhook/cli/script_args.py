"""Define the arguments of the commands that run a script."""

from __future__ import annotations

import argparse
import os
import sys

from tenterhook.cli.imports import module_exists


def add_script_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-m", dest="module", action="store_true", help="treat the script argument as a module name, not as a path"
    )
    parser.add_argument("script", help="script to run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments for the script")


def report_missing_script(command: str, args: argparse.Namespace) -> bool:
    """Print an error and return True if the script does not exist, otherwise return False."""
    if args.module:
        if module_exists(args.script):
            return False
        path = args.script.replace(".", "/").removesuffix("/py") + ".py"
        instead = f"; to run a file, write tenterhook {command} {path}" if os.path.exists(path) else ""
        print(f"tenterhook {command}: no module is named {args.script!r}{instead}", file=sys.stderr)
        return True
    if os.path.isfile(args.script):
        return False
    if os.path.isdir(args.script) and os.path.exists(os.path.join(args.script, "__main__.py")):
        return False
    kind = "is a folder, not a script" if os.path.isdir(args.script) else "does not exist"
    print(f"tenterhook {command}: the file {args.script!r} {kind}", file=sys.stderr)
    return True
