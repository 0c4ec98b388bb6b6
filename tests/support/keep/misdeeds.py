"""Do everything that the guard must detect. Run as a module, it prints what the guard reported for each."""

from __future__ import annotations

import contextlib
import importlib
import json
import operator
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import tenterhook as th
from tests.support.keep.guard import MEMORY, MESSAGE, SECONDS, Guard, faults


class Loud(th.StateError):
    """Have a message that may be long or not printable, unlike the errors of tenterhook."""

    def __str__(self) -> str:
        return self.fact


def _refuse(text: str = "no") -> None:
    raise Loud(text)


def _raise(error: BaseException) -> None:
    raise error


def _refuse_over(error: Exception) -> None:
    raise th.StateError("no") from error


def _burn() -> None:
    until = time.thread_time() + 2 * SECONDS
    while time.thread_time() < until:
        pass


def _import(name: str, by: str) -> None:
    __import__(name, {"__name__": by}, None, ["x"])


def _write(path: str) -> None:
    Path(path).write_text("x")


#: forbidden operations, each with the text that the guard must report; each is followed by a normal refusal
DONE: list[tuple[str, Callable[[], Any]]] = [
    ("exec ", lambda: eval("1 + 1")),
    ("compile ", lambda: compile("1", "x", "eval")),
    ("import 'this_is_not_there'", lambda: _try(lambda: _import("this_is_not_there", "torch"))),
    ("import 'wave'", lambda: _import("wave", "somebody")),
    ("import 'os.path' by 'tenterhook.rig'", lambda: _import("os.path", "tenterhook.rig")),
    ("importlib.import_module('os',)", lambda: importlib.import_module("os")),
    ("pickle.loads", lambda: pickle.loads(pickle.dumps(1))),
    ("pickle.find_class ", lambda: pickle._loads(pickle.dumps(os.getcwd))),
    ("torch.load", lambda: _try(lambda: torch.load("nowhere"))),
    ("operator.attrgetter('a',)", lambda: operator.attrgetter("a")),
    ("open ('left'", lambda: _write("left")),
    ("open ('/etc/hostname'", lambda: _try(lambda: Path("/etc/hostname").read_text())),
    ("os.mkdir ", lambda: _try(lambda: os.mkdir("left"))),
    ("os.system ", lambda: os.system("true")),
    ("subprocess.Popen ", lambda: subprocess.run(["true"], check=False)),
    ("socket.__new__ ", lambda: socket.socket().close()),
    ("warned: careful", lambda: warnings.warn("careful", stacklevel=1)),
    ("took ", _burn),
    (" MiB", lambda: (b"x" * 2 * MEMORY).count(b"y")),
    (" MiB", lambda: torch.ones(MEMORY).sum()),
]

#: wrong ways to end, each with the text that the guard must report
ENDED: list[tuple[str, Callable[[], Any]]] = [
    ("accepted", lambda: None),
    *((f"untyped: {type(e).__name__}", lambda e=e: _raise(e)) for e in (
        RecursionError("x"), KeyError("x"), MemoryError(), RuntimeError("x"), ValueError("x"), SystemExit(1))),
    ("two errors: ValueError beneath", lambda: _refuse_over(ValueError("x"))),
    ("a message of", lambda: _refuse("x" * (MESSAGE + 1))),
    ("cannot be printed", lambda: _refuse("\x1b[2J")),
    ("cannot be printed", lambda: _refuse("\ud800")),
]  # fmt: skip


def _try(call: Callable[[], Any]) -> None:
    with contextlib.suppress(Exception):
        call()


def _then_refuse(call: Callable[[], Any]) -> Callable[[], None]:
    def both() -> None:
        call()
        _refuse()

    return both


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        readable = Path(place, "plan.json")
        readable.write_text("{}")
        guard = Guard()
        calls = [*((must, _then_refuse(call)) for must, call in DONE), *ENDED]
        said = [(must, faults(guard.watch(call))) for must, call in calls]
        said.append(("", faults(guard.watch(_then_refuse(readable.read_text), reading=readable))))
        said.append(("open ", faults(guard.watch(_then_refuse(lambda: _write(str(readable))), reading=readable))))
        said.append(("", faults(guard.watch(_refuse))))
        json.dump(said, sys.stdout)


if __name__ == "__main__":
    main()
