"""Start Python programs in processes that have imported torch already.

Importing torch takes seconds, and many tests run whole programs. A server process imports torch once. For every
program it forks a child. The child is a separate process with the program's arguments, environment, folder and streams.
It ends as any interpreter does, and it can be killed. `warm_python()` returns the path of an executable that replaces
`sys.executable`. It understands `SCRIPT`, `-m MODULE`, `-c CODE` and `-u`; with other options it starts the real
interpreter. The hash seed and the imported modules are those of the server. A test about either uses the real
interpreter.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import functools
import gc
import importlib
import json
import linecache
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from types import ModuleType, TracebackType

ROOT = Path(__file__).parents[2]
#: a training program imports torch, and its optimizer imports Dynamo; more would hide what tenterhook imports itself
PLAIN = ("torch", "torch._dynamo")
#: imported by every program of tests/support/ranks
RANKS = (
    *PLAIN,
    "torch.distributed.run",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "torch.distributed.checkpoint",
    "tenterhook.rig",
    "tenterhook.keep",
    "tenterhook.doctor",
)

CLIENT = """\
#!{python} -IS
import array, json, os, signal, socket, sys
arguments = sys.argv[1:]
first = next((a for a in arguments if a != "-u"), "-")
if first.startswith("-") and first not in ("-m", "-c"):
    os.execv({python!r}, [{python!r}, *arguments])
server = socket.socket(socket.AF_UNIX)
server.connect({path!r})
request = json.dumps([arguments, {{**os.environ, "WARM_PYTHON": {client!r}}}, os.getcwd()]).encode()
streams = array.array("i", [0, 1, 2])
server.sendmsg([len(request).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
server.sendall(request)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: server.send(bytes([number])))
code = int.from_bytes(server.recv(2), "big", signed=True)
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@functools.cache
def warm_python(*preload: str) -> str:
    """Start a server that has imported the given modules; return the path of the executable that uses it."""
    folder = tempfile.mkdtemp(prefix="warm-python-")
    path, client = f"{folder}/socket", Path(folder, "python")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/src", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.support.warm_python", path, *(preload or PLAIN)]
    server = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    assert server.stdout is not None and server.stdout.readline() == b"ready\n"
    atexit.register(server.kill)
    client.write_text(CLIENT.format(python=sys.executable, path=path, client=str(client)))
    client.chmod(0o755)
    for name, module in {"tenterhook": "tenterhook", "torchrun": "torch.distributed.run"}.items():
        Path(folder, name).write_text(f'#!/bin/sh\nexec "{client}" -m {module} "$@"\n')
        Path(folder, name).chmod(0o755)
    Path(folder, "python3").symlink_to(client)
    return str(client)


def serve(path: str, preload: list[str]) -> None:
    """Fork a supervisor for every connection, until standard input is closed."""
    for module in preload:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors report to their clients
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            supervise(connection)
            return
        connection.close()


def supervise(connection: socket.socket) -> None:
    """Fork the program, pass signals to it, and send its exit code to the client. Return in the program's process."""
    size, ancillary, _, _ = connection.recvmsg(8, socket.CMSG_SPACE(3 * 4))
    streams = array.array("i", ancillary[0][2])
    request = b""
    while len(request) < int.from_bytes(size, "big"):
        request += connection.recv(1 << 20)
    arguments, environment, folder = json.loads(request)
    pid = os.fork()
    if pid == 0:
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        program(arguments, environment, folder)
        return
    for stream in streams:
        os.close(stream)
    child = os.pidfd_open(pid)
    while True:
        ready, _, _ = select.select([connection, child], [], [])
        if child in ready:
            break
        received = connection.recv(1)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, received[0] if received else signal.SIGKILL)
        if not received:
            break
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        connection.sendall(code.to_bytes(2, "big", signed=True))
    os._exit(0)


def program(arguments: list[str], environment: dict[str, str], folder: str) -> None:
    """Become the program: run what the arguments name, as `python` would."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through="-u" in arguments[:1])
    arguments = arguments[1:] if arguments[:1] == ["-u"] else arguments
    where = [entry for entry in environment.get("PYTHONPATH", "").split(":") if entry]
    first = {"-c": "", "-m": folder}.get(arguments[0], os.path.dirname(os.path.abspath(arguments[0])))
    own = {str(ROOT), str(ROOT / "src"), ""}  # the server's entries
    sys.path[:] = [first, *where, *(entry for entry in sys.path if entry not in own), str(ROOT / "src")]
    set_warnings(environment.get("PYTHONWARNINGS", ""))
    os.environ["PYTHON_EXEC"] = sys.executable = environment.get("WARM_PYTHON", sys.executable)
    last: list[signal.Signals] = []
    atexit.register(lambda: end_by(last))  # registered first, so called last
    try:
        run(arguments)
    except (Exception, KeyboardInterrupt) as error:
        error = error.with_traceback(without_our_frames(error.__traceback__, keep_runpy=arguments[0] == "-m"))
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt) and arguments[0] != "-m":
            last.append(signal.SIGINT)
        sys.exit(1)


def end_by(signals: list[signal.Signals]) -> None:
    """End by a signal, as an interpreter does that was interrupted."""
    for number in signals:
        sys.stdout.flush()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def set_warnings(option: str) -> None:
    """Set the filters with which an interpreter starts."""
    warnings.resetwarnings()
    warnings.simplefilter(option or "default")  # type: ignore[arg-type]
    if not option:
        for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", category)
        warnings.filterwarnings("default", category=DeprecationWarning, module="__main__")


def run(arguments: list[str]) -> None:
    main = sys.modules["__main__"] = ModuleType("__main__")  # in place of this module
    if arguments[0] == "-m":
        sys.argv = ["-m", *arguments[2:]]
        sys.modules.pop(arguments[1], None)  # the server may have imported it
        runpy._run_module_as_main(arguments[1])  # what the interpreter calls
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        code = compile(arguments[1], "<string>", "exec")
        if sys.version_info >= (3, 14):  # tracebacks show the code, warnings do not
            linecache._register_code(code, arguments[1], "<string>")
        elif sys.version_info >= (3, 13):
            linecache.cache["<string>"] = (len(arguments[1]), None, arguments[1].splitlines(True), "<string>")
        exec(code, vars(main))
    else:
        sys.argv = arguments
        runpy.run_path(os.path.abspath(arguments[0]), run_name="__main__")


def without_our_frames(frames: TracebackType | None, *, keep_runpy: bool) -> TracebackType | None:
    """Leave out the frames that the real interpreter does not have: of this file, and of runpy if it ran a file."""
    ours = (__file__,) if keep_runpy else (__file__, "<frozen runpy>")
    while frames is not None and frames.tb_frame.f_code.co_filename in ours:
        frames = frames.tb_next
    return frames


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2:])
