"""Test that a program runs as `python program` would run it."""

from __future__ import annotations

import multiprocessing
import sys
from contextlib import nullcontext
from pathlib import Path

from tenterhook.program import run


def test_the_main_module_has_the_name_that_spawned_processes_write(tmp_path: Path):
    assert multiprocessing is not None  # it gives the main module its second name
    before = sys.modules["__mp_main__"]
    file = tmp_path / "script.py"
    file.write_text(
        "import pickle\n"
        "class Thing:\n"
        "    pass\n"
        "Thing.__module__ = '__mp_main__'  # as in a spawned process\n"
        "assert type(pickle.loads(pickle.dumps(Thing()))) is Thing\n"
    )
    assert run(str(file), [], nullcontext()) == 0
    assert sys.modules["__mp_main__"] is before
