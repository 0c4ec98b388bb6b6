"""Implement the `tenterhook` command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tenterhook import __version__
from tenterhook.cli import check, diff, doctor, points, report, run, view
from tenterhook.cli.parser import Parser
from tenterhook.errors import TenterhookError

EPILOG = """\
exit codes: 0 = success; 1 = an error or a warning was found; 2 = the command failed.
`run` returns the script's exit code, or 3 if that code is 0 and the plan could not be attached to any model.
"""


def make_parser() -> Parser:
    parser = Parser(
        prog="tenterhook",
        description="tenterhook is a hook layer for PyTorch training.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tenterhook {__version__}")
    commands = parser.add_subparsers(metavar="command")
    for command in (run, doctor, view, diff, report, check, points):
        command.add_parser(commands)
    for one in commands.choices.values():
        one.set_defaults(parser=one)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code."""
    parser = make_parser()
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        getattr(args, "parser", parser).error(f"unrecognized arguments: {' '.join(unknown)}")
    if not hasattr(args, "execute"):
        parser.print_help(sys.stderr)
        return 2
    try:
        return int(args.execute(args))
    except TenterhookError as error:
        print(f"tenterhook: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of the pipe, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
