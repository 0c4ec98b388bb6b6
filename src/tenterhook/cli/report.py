"""Implement `tenterhook report`, which writes a recorded run as one HTML file."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        help="write a recorded run as one HTML file",
        description="Write one HTML file that loads nothing from the network. The file shows gradients by layer and "
        "step, updates compared with weights, histograms, the hook ledger, findings, and trigger trips with their "
        "suspects.",
    )
    parser.add_argument("run", metavar="RUN", help="run folder, or a folder that contains several runs")
    parser.add_argument("--out", metavar="FILE", help="output file (default: RUN/report.html)")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    from tenterhook.view import report

    last = time.monotonic()
    out = Path(args.out or Path(args.run) / "report.html")

    def show_progress(what: str) -> None:
        nonlocal last
        if sys.stderr.isatty() and time.monotonic() - last > 1:
            last = time.monotonic()
            print(f"tenterhook report: {what}", file=sys.stderr, flush=True)

    report(args.run, out, progress=show_progress)
    print(out)
    return 0
