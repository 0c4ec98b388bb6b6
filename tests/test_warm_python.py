"""Test that a program behaves under `warm_python` as it does under the real interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.warm_python import warm_python

PROGRAMS = {
    "what it prints": "import sys; print('out'); print('err', file=sys.stderr)",
    "its arguments": "import sys; print(sys.argv[1:], __name__, sys.path[0])",
    "its environment and folder": "import os; print(os.environ['MARK'], os.getcwd(), sorted(os.listdir()))",
    "standard input": "print(input() * 2)",
    "exit code": "import sys; sys.exit(7)",
    "exit with a message": "import sys; sys.exit('stopped')",
    "an error": "def f():\n    raise KeyError('lost')\nf()",
    "an error with a cause": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('x') from e",
    "a syntax error": "print(1\n",
    "atexit": "import atexit; atexit.register(print, 'bye'); print('hello')",
    "a thread that is not joined": (
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()"
    ),
    "an uncaught signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "a warning": "import warnings; warnings.warn('careful'); warnings.warn('old', DeprecationWarning)",
    "a module beside it": "import beside; print(beside.x)",
    "a child process": "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(5)'], check=True)",
    "a class of its own in a pickle": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))))",
    "a pool": (
        "import multiprocessing as m\nif __name__ == '__main__':\n    with m.get_context('fork').Pool(1) as p:\n"
        "        print(p.map(abs, [-1]))"
    ),
}


def outcome(python: str, folder: Path, *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [python, *arguments],
        cwd=folder,
        env={**os.environ, "MARK": "here", "PYTHONPATH": ""},
        input="ab\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slice(4)
@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("how", ["file", "-c", "-m"])
def test_a_program_behaves_the_same(how: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(text)
    (tmp_path / "beside.py").write_text("x = 3")
    arguments = {"file": ["program.py"], "-c": ["-c", text], "-m": ["-m", "program"]}[how]
    assert outcome(warm_python(), tmp_path, *arguments, "a", "-b") == outcome(
        sys.executable, tmp_path, *arguments, "a", "-b"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_program(number: signal.Signals, tmp_path: Path) -> None:
    program = (
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a process in the background ignores it
        # A signal that arrives just before a sleep begins is noticed when the sleep ends.
        "print('up', flush=True)\nfor _ in range(600): time.sleep(0.1)"
    )
    codes = []
    for python in (sys.executable, warm_python()):
        process = subprocess.Popen(
            [python, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        process.send_signal(number)
        codes.append(process.wait(30))
        process.stdout.close()
    assert codes[0] == codes[1] != 0


def test_a_killed_client_takes_its_program_with_it(tmp_path: Path) -> None:
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    client = subprocess.Popen([warm_python(), "-c", program], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    pid = int(client.stdout.readline())
    client.kill()
    client.wait()
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists():
            break
        time.sleep(0.1)
    assert not Path(f"/proc/{pid}").exists()
    client.stdout.close()


def test_torch_is_imported_already(tmp_path: Path) -> None:
    text = "import sys; print('torch' in sys.modules, 'tenterhook' in sys.modules)"
    assert outcome(warm_python(), tmp_path, "-c", text) == (0, "True False\n", "")
