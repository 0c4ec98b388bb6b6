"""Examine the processes that a program starts with `multiprocessing`, and collect their findings."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenterhook.doctor.findings import Finding, read_findings
from tenterhook.record import write_file


@dataclass(frozen=True, slots=True)
class ExaminedTarget:
    """The target of a process, with an exam around it. It is pickled together with the process."""

    target: Callable[..., Any]
    folder: str
    #: creates an exam
    examine: Callable[[], Any]
    #: ends the exam of the parent process in a process that was forked
    abandon: Callable[[], None] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if self.abandon is not None:
            self.abandon()
        exam = self.examine()
        try:
            with exam:
                self.target(*args, **kwargs)
        finally:
            with suppress(OSError):  # the exam of the parent process may have ended, and its folder is gone
                write_file(Path(self.folder) / f"{os.getpid()}.json", exam.findings.to_json().encode())


class ChildExams:
    """The exams of the processes that the program has started."""

    def __init__(self, examine: Callable[[], Any]) -> None:
        self._examine = examine
        self._folder: str | None = None

    def around(self, process: Any, start: Callable[[Any], None], abandon: Callable[[], None]) -> None:
        """Start a process with an exam around its target."""
        target = process._target
        forked = getattr(process, "_start_method", "fork") == "fork"
        self._folder = self._folder or tempfile.mkdtemp(prefix="tenterhook-")
        process._target = ExaminedTarget(target, self._folder, self._examine, abandon if forked else None)
        try:
            start(process)
        finally:
            process._target = target

    def findings(self) -> Iterator[Finding]:
        """Yield the findings of the processes that have ended, and forget them."""
        if self._folder is None:
            return
        for path in sorted(Path(self._folder).glob("*.json")):
            # A finding without a place is a statement about the program as a whole.
            yield from (one for one in read_findings(path.read_text(encoding="utf-8")) if one.place is not None)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None
