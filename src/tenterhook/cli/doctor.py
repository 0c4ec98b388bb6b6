"""`tenterhook doctor`: run a script, and report what is wrong with its hooks."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tenterhook.cli.script_args import add_script_arguments, report_missing_script


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "doctor",
        help="run a script as it is, and say what is wrong with its hooks",
        description="Run a script as `python script.py` would. Every hook it registers is watched; what is wrong with "
        "them is said at the end. The exit code is 1 if the doctor found an error or a warning.",
    )
    parser.add_argument("--json", action="store_true", help="the findings as JSON, for scripts")
    parser.add_argument("--hooks", action="store_true", help="every hook with its fate, too")
    add_script_arguments(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    from tenterhook.doctor import examine
    from tenterhook.program import run

    if report_missing_script("doctor", args):
        return 2
    exam = examine()
    code = run(args.script, args.arguments, exam, module=args.module)
    sys.stdout.flush()
    if args.json:
        print(exam.findings.to_json())
    else:
        print(exam if args.hooks else exam.findings, file=sys.stderr)
    return code or exam.findings.exit_code
