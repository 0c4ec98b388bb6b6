"""What commands have in common that run a script."""

from __future__ import annotations

import argparse
import os
import sys


def add_program(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", dest="module", action="store_true", help="a module's name rather than a path")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="for the script")


def missing(command: str, given: argparse.Namespace) -> bool:
    """Whether there is no such script; said, if so."""
    if given.module or os.path.exists(given.script):
        return False
    print(f"tenterhook {command}: there is no file {given.script!r}", file=sys.stderr)
    return True
