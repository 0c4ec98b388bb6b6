"""The `tenterhook` command."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict

from tenterhook import __version__
from tenterhook.plan import NOT_OFFERED, POINTS


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="tenterhook", description="Hooks that hold: a hook layer for PyTorch training."
    )
    parser.add_argument("--version", action="version", version=f"tenterhook {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    points = commands.add_parser(
        "points", help="the signals a hook can be at, and what PyTorch function each stands on"
    )
    points.add_argument("--json", action="store_true", help="as JSON, for scripts")
    doctor = commands.add_parser(
        "doctor", help="run a script as it is, and say what is wrong with its hooks",
        description="Run a script as `python script.py` would. Every hook it registers is watched; what is wrong with "
        "them is said at the end. The exit code is 1 if the doctor found an error or a warning.",
    )  # fmt: skip
    doctor.add_argument("--json", action="store_true", help="the findings as JSON, for scripts")
    doctor.add_argument("--hooks", action="store_true", help="every hook with its fate, too")
    doctor.add_argument("-m", dest="module", action="store_true", help="a module's name rather than a path")
    doctor.add_argument("script")
    doctor.add_argument("arguments", nargs=argparse.REMAINDER, help="for the script")
    given = parser.parse_args(argv)
    if given.command == "doctor":
        return _doctor(given)
    if given.command == "points":
        try:
            print(_points_json() if given.json else _points_text(), flush=True)
        except BrokenPipeError:  # the reader, such as `head`, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    parser.print_help(sys.stderr)
    return 2


def _doctor(given: argparse.Namespace) -> int:
    from tenterhook.doctor.script import run

    if not given.module and not os.path.exists(given.script):
        print(f"tenterhook doctor: there is no file {given.script!r}", file=sys.stderr)
        return 2
    exam, code = run(given.script, given.arguments, module=given.module)
    sys.stdout.flush()
    if given.json:
        print(exam.findings.to_json())
    else:
        print(exam if given.hooks else exam.findings, file=sys.stderr)
    return code or exam.findings.exit_code


def _points_json() -> str:
    return json.dumps({"points": [asdict(p) for p in POINTS.values()], "not_offered": NOT_OFFERED}, indent=2)


def _points_text() -> str:
    rows = [("point", "on", "modify", "stands on", "signal")]
    rows += [(p.name, ", ".join(p.on), "yes" if p.modifies else "no", p.stands_on, p.signal) for p in POINTS.values()]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = ["  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[4]]) for row in rows]
    width = max(map(len, NOT_OFFERED))
    refused = [f"  {name.ljust(width)}  {why}" for name, why in NOT_OFFERED.items()]
    return "\n".join([*lines, "", "not offered:", *refused])
