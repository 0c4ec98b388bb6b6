"""Write the tables of docs/devices.md."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tenterhook.actions.definition import TENSOR_POINTS
from tests.support.devices.cases import ACTIONS, Case
from tests.support.devices.transfers import Kind

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "devices.md"
BEGIN, END = "<!-- tables -->", "<!-- end of tables -->"


def results(*options: str, python: str = sys.executable) -> list[dict[str, object]]:
    """Run cases on the simulated device, in a process of their own, and return what they print."""
    command = [python, "-m", "tests.support.devices", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def as_cases(found: Iterable[dict[str, object]]) -> list[Case]:
    return [Case(**one) for one in found]  # type: ignore[arg-type]


def tables(found: Sequence[Case]) -> str:
    """Return the tables, with a sentence that counts what is in them."""
    cells = {(one.action, one.point): cell(one) for one in found if one.point}
    programs = [one for one in found if not one.point]
    alone = [one for one in found if one.point]
    equal = sum(not one.differs for one in alone)
    lines = [
        f"{len(alone)} pairs of an action and a point: {sum(one.most[Kind.READ] for one in alone)} host reads, "
        f"{sum(one.waits - one.most[Kind.READ] for one in alone)} blocking copies, {equal} with equal bits, "
        f"{len(alone) - equal} with other bits.",
        "",
        "| action | " + " | ".join(f"`{point}`" for point in TENSOR_POINTS) + " |",
        "|---" * (len(TENSOR_POINTS) + 1) + "|",
    ]
    for action in ACTIONS:
        row = [cells.get((action, point), "–") for point in TENSOR_POINTS]
        lines.append(f"| `{action}` | " + " | ".join(row) + " |")
    lines += [
        "",
        f"{len(programs)} programs in which several parts act together:",
        "",
        "| program | host reads | blocking copies | asynchronous copies to the host | bits |",
        "|---|---|---|---|---|",
    ]
    for one in programs:
        reads = one.most[Kind.READ]
        bits = f"**other: {', '.join(one.differs)}**" if one.differs else "equal"
        lines.append(f"| {one.action} | {reads} | {one.waits - reads} | {one.copies} | {bits} |")
    return "\n".join(lines)


def cell(one: Case) -> str:
    """Return the host reads, the blocking copies and the asynchronous copies to the host of a case."""
    reads = one.most[Kind.READ]
    return f"{reads} {one.waits - reads} {one.copies}" + (" **other bits**" if one.differs else "")


def with_tables(page: str, found: Sequence[Case]) -> str:
    """Return the page with new tables."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n\n{tables(found)}\n\n{END}{rest.partition(END)[2]}"
