"""The arguments of commands that run a script."""

from __future__ import annotations

import argparse
import os
import sys


def add_script_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", dest="module", action="store_true", help="a module's name rather than a path")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="for the script")


def report_missing_script(command: str, args: argparse.Namespace) -> bool:
    """Print that there is no such script, and return True; return False if there is one."""
    if args.module or os.path.exists(args.script):
        return False
    print(f"tenterhook {command}: there is no file {args.script!r}", file=sys.stderr)
    return True
