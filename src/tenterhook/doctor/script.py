"""Run a program as it is, and say what is wrong with its hooks."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from tenterhook.doctor.raw import Exam, examine


def run(program: str, arguments: Sequence[str], *, module: bool = False) -> tuple[Exam, int]:
    """As `python program arguments` would, or `python -m program`; the exam, and the program's own exit code."""
    argv, path = sys.argv[:], sys.path[:]
    sys.argv = [program, *arguments]
    sys.path[0:0] = [os.getcwd()] if module else [str(Path(program).resolve().parent)]
    exam, code = examine(), 0
    try:
        with exam:
            # What the program leaves has to live until the exam is over.
            left = (
                runpy.run_module(program, run_name="__main__", alter_sys=True)
                if module
                else runpy.run_path(os.path.abspath(program), run_name="__main__")
            )
        left.clear()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if ended.code is not None and not isinstance(ended.code, int):
            print(ended.code, file=sys.stderr)
    except KeyboardInterrupt:
        code = 130
    except BaseException as error:  # as the interpreter would
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    finally:
        sys.argv, sys.path[:] = argv, path
    return exam, code
