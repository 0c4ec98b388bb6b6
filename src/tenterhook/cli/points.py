"""Implement `tenterhook points`, which lists the signals that a hook can receive."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from tenterhook.plan import NOT_OFFERED, POINTS


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "points", help="list the signals that a hook can receive, and the PyTorch function behind each"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    print(_json() if args.json else _text(), flush=True)
    return 0


def _json() -> str:
    return json.dumps({"points": [asdict(p) for p in POINTS.values()], "not_offered": NOT_OFFERED}, indent=2)


def _text() -> str:
    rows = [("point", "on", "modify", "uses", "signal")]
    rows += [(p.name, ", ".join(p.on), "yes" if p.modifies else "no", p.uses, p.signal) for p in POINTS.values()]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = ["  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[4]]) for row in rows]
    width = max(map(len, NOT_OFFERED))
    refused = [f"  {name.ljust(width)}  {why}" for name, why in NOT_OFFERED.items()]
    return "\n".join([*lines, "", "not offered:", *refused])
