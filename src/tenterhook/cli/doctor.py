"""Implement `tenterhook doctor`, which runs a script and reports problems with its hooks."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tenterhook.cli.finding_args import add_finding_arguments, exit_code, select, unknown_code
from tenterhook.cli.script_args import add_script_arguments, report_missing_script


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "doctor",
        help="run an unmodified script, and report problems with its hooks",
        description="Run a script as `python script.py` would, watch every hook that it registers, and report problems "
        "at the end. The exit code is that of the script, or 1 if that code is 0 and the doctor found an error or a "
        "warning.",
    )
    parser.add_argument("--json", metavar="FILE", help="write the findings to FILE as JSON, and print nothing")
    parser.add_argument("--patch", metavar="FILE", help="write corrections of the script to FILE, for git apply -p0")
    parser.add_argument("--hooks", action="store_true", help="also list every hook and whether it fired")
    add_finding_arguments(parser)
    add_script_arguments(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    from tenterhook.doctor import examine
    from tenterhook.program import run
    from tenterhook.record import write_file

    if report_missing_script("doctor", args):
        return 2
    if problem := unknown_code(args):
        print(f"tenterhook doctor: {problem}", file=sys.stderr)
        return 2
    exam = examine()
    code = run(args.script, args.arguments, exam, module=args.module)
    sys.stdout.flush()
    exam.findings = select(exam.findings, args)
    for option, file, content in (
        ("--json", args.json, exam.findings.to_json()),
        ("--patch", args.patch, exam.findings.patch),
    ):
        try:
            if file:
                write_file(file, content.encode())
        except OSError as error:
            print(f"tenterhook doctor: {option} {file} cannot be written: {error.strerror}", file=sys.stderr)
            return code or 2
    if not args.json:
        print(exam if args.hooks else exam.findings, file=sys.stderr)
    return code or exit_code(exam.findings, args)
