"""Implement `tenterhook view`, which shows runs in a browser while they are recorded."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

#: folder in which `tenterhook run` writes its runs
RUNS = "runs"


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "view",
        help="show recorded runs in a browser",
        description="Serve a page with recorded runs on this machine, and print its address. The page shows runs that "
        "are still being recorded, too. It only reads run folders, and has no connection to the training. To watch a "
        "run on another machine, forward the port with ssh -L.",
    )
    parser.add_argument(
        "runs", metavar="RUN", nargs="*", help=f"run folder, or a folder that contains several runs (default: {RUNS})"
    )
    parser.add_argument("--port", type=_port, default=0, metavar="N", help="port on 127.0.0.1 (default: any free port)")
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")
    parser.set_defaults(execute=execute)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 2**16):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; use a number from 0 to 65535")
    return int(text)


def execute(args: argparse.Namespace) -> int:
    from tenterhook.view.server.serve import serve

    serve([Path(run) for run in args.runs] or [Path(RUNS)], port=args.port, browser=not args.no_browser)
    sys.stdout.flush()
    # A thread that still reads a run would need the interpreter while it ends, and DuckDB aborts the process then.
    os._exit(0)
