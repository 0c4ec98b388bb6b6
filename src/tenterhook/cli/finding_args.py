"""Define the arguments that choose which findings are reported, and which exit code they cause."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tenterhook.errors import nearest

if TYPE_CHECKING:
    from tenterhook.doctor.findings import Findings

#: the severities that cause the exit code, by the value of --fail-on
FAILING = {
    "error": {"error"},
    "warning": {"error", "warning"},
    "note": {"error", "warning", "note"},
    "never": set[str](),
}


def add_finding_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ignore",
        metavar="CODE",
        action="append",
        default=[],
        help="leave out findings with this code; may be repeated",
    )
    parser.add_argument(
        "--fail-on",
        choices=FAILING,
        default="warning",
        help="least severity that causes an exit code other than 0 (default: warning)",
    )
    parser.add_argument(
        "--exit-code", type=int, default=1, metavar="N", help="exit code if there is such a finding (default: 1)"
    )


def unknown_code(args: argparse.Namespace) -> str | None:
    """Return an error text if --ignore names a code that does not exist, otherwise None."""
    if not args.ignore:
        return None  # reading the codes imports torch
    from tenterhook.doctor.findings import CODES

    for code in args.ignore:
        if code not in CODES:
            close = nearest(code, CODES, 1) if len(code) != len("TH301") else []
            remedy = (
                f"write --ignore {close[0]}" if close else "write a code that a report shows, such as --ignore TH301"
            )
            return f"--ignore {code}: this code does not exist\n  remedy: {remedy}"
    return None


def select(findings: Findings, args: argparse.Namespace) -> Findings:
    """Return the findings whose codes are not ignored."""
    return type(findings)(finding for finding in findings if finding.code not in args.ignore)


def exit_code(findings: Findings, args: argparse.Namespace) -> int:
    """Return the exit code that the findings cause."""
    return args.exit_code if any(finding.severity in FAILING[args.fail_on] for finding in findings) else 0
