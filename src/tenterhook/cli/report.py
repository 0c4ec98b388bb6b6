"""`tenterhook report`: a run folder as one HTML file."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        help="make one HTML file of what was recorded",
        description="One file, with nothing to load from elsewhere: gradients over layers and steps, updates beside "
        "weights, histograms, what hooks did, findings, trips with suspects.",
    )
    parser.add_argument("run", metavar="RUN", help="a run folder, or one of several runs")
    parser.add_argument("--out", metavar="FILE", help="where to (RUN/report.html)")
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
