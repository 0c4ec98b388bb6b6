"""Run small faulty and healthy programs with hooks, each one without an exam and under an exam.

The first line of a faulty program lists the codes that must be found first: `# TH301`, or `# TH301 TH403` for two
faults. The line that a finding points to ends in `# <- TH301`. A program stores the outcome of its run in `result`.
"""

from __future__ import annotations

import contextlib
import io
import random
import re
import runpy
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import tenterhook as th
from tenterhook.doctor.findings import Findings
from tests.support.leftovers import clear_compiled
from tests.support.needs import needs

HERE = Path(__file__).parents[2] / "doctor"


@dataclass(frozen=True)
class Program:
    path: Path

    @property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def codes(self) -> list[str]:
        first = self.text.partition("\n")[0]
        return first.removeprefix("#").split() if first.startswith("# TH") else []

    def need_packages(self) -> None:
        """Skip the test if a package that the program imports is not installed."""
        for package in re.findall(r"^\s*(?:import|from) (\w+)", self.text, flags=re.MULTILINE):
            needs(package)

    @property
    def lines(self) -> dict[str, list[int]]:
        """Return, for each code, the lines that its finding may point to."""
        found: dict[str, list[int]] = {}
        for number, line in enumerate(self.text.splitlines(), 1):
            for code in line.partition("# <- ")[2].split():
                found.setdefault(code, []).append(number)
        return found

    def __str__(self) -> str:
        return self.path.stem


def programs(folder: str) -> list[Program]:
    return [Program(path) for path in sorted((HERE / folder).glob("*.py")) if path.name != "__init__.py"]


@dataclass(frozen=True)
class Run:
    result: Any
    error: str | None
    findings: Findings
    printed: str


def run(program: Program, *, examined: bool) -> Run:
    torch.manual_seed(0)
    random.seed(0)
    clear_compiled()
    exam, error, left = th.examine(), None, {}
    with contextlib.redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings():
        warnings.simplefilter("default")
        try:
            if examined:
                with exam:
                    left = runpy.run_path(str(program.path), run_name="__main__")
            else:
                left = runpy.run_path(str(program.path), run_name="__main__")
        except (Exception, KeyboardInterrupt) as raised:
            error = f"{type(raised).__name__}: {raised}".partition("\n")[0]  # dynamo appends a stack to its messages
    return Run(left.get("result"), error, exam.findings, printed.getvalue())


def same(a: Any, b: Any) -> bool:
    """Compare two results bit for bit."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a.nan_to_num(), b.nan_to_num())
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)
