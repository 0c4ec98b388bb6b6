"""Run a program as `python program` would, inside a context manager."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any


def run(program: str, arguments: Sequence[str], around: AbstractContextManager[Any], *, module: bool = False) -> int:
    """Run `python program arguments`, or `python -m program arguments`, inside `around`, and return the exit code.

    If the program ends with an error, the context manager `around` receives the exception.
    """
    argv, path, code, main = sys.argv[:], sys.path[:], 0, sys.modules.get("__mp_main__")
    if main is not None:
        sys.modules["__mp_main__"] = _MainAlias("__mp_main__")
    sys.argv = [program, *arguments]
    sys.path[0:0] = [os.getcwd()] if module else [str(Path(program).resolve().parent)]
    try:
        with around:
            # Keep the program's objects alive until the context manager has exited.
            namespace = (
                runpy.run_module(program, run_name="__main__", alter_sys=True)
                if module
                else runpy.run_path(os.path.abspath(program), run_name="__main__")
            )
        namespace.clear()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if ended.code is not None and not isinstance(ended.code, int):
            print(ended.code, file=sys.stderr)
    except KeyboardInterrupt:
        code = 130
    except BaseException as error:  # print the traceback as the interpreter does
        error = error.with_traceback(_program_frames(error.__traceback__))
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    finally:
        sys.argv, sys.path[:] = argv, path
        if main is not None:
            sys.modules["__mp_main__"] = main
    return code


class _MainAlias(ModuleType):
    """The second name that `multiprocessing` gives to the main module.

    A spawned process writes this name into the objects that it pickles.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.modules["__main__"], name)


def _program_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without its leading frames, which belong to this module and runpy."""
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
        trace = trace.tb_next
    return trace
