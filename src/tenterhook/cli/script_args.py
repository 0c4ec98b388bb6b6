"""Define the arguments of the commands that run a script."""

from __future__ import annotations

import argparse
import os
import sys


def add_script_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-m", dest="module", action="store_true", help="treat the script argument as a module name, not as a path"
    )
    parser.add_argument("script", help="script to run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments for the script")


def report_missing_script(command: str, args: argparse.Namespace) -> bool:
    """Print an error and return True if the script does not exist, otherwise return False."""
    if args.module or os.path.exists(args.script):
        return False
    print(f"tenterhook {command}: the file {args.script!r} does not exist", file=sys.stderr)
    return True
