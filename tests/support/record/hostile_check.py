"""Give every hostile run folder to every reader, each in a process of its own, and list what goes wrong.

python -m tests.support.record.hostile_check [--every N] [--only WORD] [--without WORD]

A reader may refuse a folder with a TenterhookError. It may not raise another error, crash, hang, use much memory, touch
a file outside the folder, use the network, or let a name become markup. It must read the folders that are innocent.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import math
import os
import resource
import select
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb  # noqa: F401 - imported once, before the processes are forked
import numpy  # noqa: F401
import pandas  # noqa: F401
import starlette.applications  # noqa: F401
import torch

import tenterhook as th
from tenterhook.cli import main as command
from tenterhook.record.rows import Batch
from tenterhook.record.rows import Row as StoredRow
from tests.support.record.hostile_folders import cases
from tests.support.record.hostile_page import judge_page
from tests.support.record.hostile_parts import SECRET, Case, plant
from tests.support.view.asking import ask_everything

#: the limits of a call, in seconds and bytes
SECONDS, MEMORY = 5.0, 256 << 20
#: a slow call that used less processor time than this waits for something, or the machine is busy, so it gets more time
BUSY, PATIENCE = 4.0, 25.0
#: the size at which the process is ended at once
FATAL = 1 << 30
#: limit of the characters of a message, since it goes to a log
MESSAGE = 8192
#: limit of the rows that are read as a DataFrame, which takes as much memory as they need
FRAME = 500_000


class Reader:
    """Call readers in a process of its own, and note what goes wrong."""

    def __init__(self, case: Case, folder: Path, send: Callable[[dict[str, Any]], None]) -> None:
        self.case, self.folder, self._send = case, folder, send
        self.innocent = case.innocent
        self._secret = "\0\0" if case.shared else SECRET
        self._before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        self._grown = False

    def fail(self, what: str) -> None:
        """Report a failure."""
        self._send({"failed": what})

    def call(self, name: str, act: Callable[[], Any]) -> Any:
        """Call a reader. Return what it returns, or None if it raises an error."""
        self._send({"call": name})
        found = None
        try:
            found = act()
        except th.TenterhookError as error:
            self._judge(name, str(error))
            if self.innocent:
                self.fail(f"{name}: refused an innocent folder: {str(error)[:200]}")
        except BaseException as error:
            last = [one for one in traceback.extract_tb(error.__traceback__) if "tenterhook" in one.filename][-1:]
            where = "".join(f" at {Path(one.filename).name}:{one.lineno}" for one in last)
            self.fail(f"{name}: {type(error).__name__}{where}: {str(error).splitlines()[:1]!r:.200}")
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - self._before
        if grown > MEMORY and not self._grown:
            self._grown = True
            self.fail(f"{name}: uses {grown >> 20} MiB more memory")
        return found

    def _judge(self, name: str, text: str) -> None:
        if self._secret in text:
            self.fail(f"{name}: the message shows a file outside the folder")
        if len(text) > MESSAGE:
            self.fail(f"{name}: a message of {len(text):,} characters")
        self._judge_terminal(name, text)

    def _judge_terminal(self, name: str, text: str) -> None:
        """Report characters that would control a terminal."""
        odd = {letter for letter in text if (ord(letter) < 32 or 127 <= ord(letter) < 160) and letter not in "\n\t\r"}
        if odd:
            self.fail(f"{name}: the message controls a terminal, with {min(odd)!r}")

    def read_all(self) -> None:
        """Call every reader and every writer."""
        before = listing(self.folder)
        run = self.call("open_run", lambda: th.open_run(self.folder))
        if run is not None:
            self._read(run)
        if listing(self.folder) != before:
            self.fail("open_run: changed the folder")
        self._report()
        for status, where in self.call("view", lambda: ask_everything(self.folder)) or ():
            if status >= 500:
                self.fail(f"view: status {status} for {where}")
            if status != 200 and self.innocent:
                self.fail(f"view: status {status} for {where} of an innocent folder")
        if run is not None:
            self.call("merge", run.merge)
            self._check_rows("fetch after merge", run)
        self._store(opened=run is not None)

    def _read(self, run: th.Run) -> None:
        count = self.call("fetch count", lambda: run.fetch("select count(*) from rows")[0][0])
        self._check_rows("fetch", run)
        one = next(((r[2], r[3], r[4]) for r in self.case.rows or ()), ("grads", "a.weight", "norm"))
        self.call("curve", lambda: run.curve(*map(str, one)))
        innocent, self.innocent = self.innocent, False
        self.call("curve of an unknown name", lambda: run.curve("grads", "a.weigth", "norm"))
        self.innocent = innocent
        if count is not None and count <= FRAME:
            frame = self.call("frame", run.frame)
            if frame is not None and (len(frame) != count or self._secret in frame["target"].values):
                self.fail(f"frame: {len(frame)} rows, or rows of another folder")
            self.call("table", lambda: run.table("g*", "a[", "?*"))
        verified = self.call("verify", run.verify)
        if self.case.rows is not None and self.innocent and verified is not None and verified < len(self.case.rows):
            self.fail(f"verify: {verified} rows")
        for name in ("plan", "ledger", "findings"):
            found = self.call(name, lambda n=name: getattr(run, n))
            if found is not None and self._secret in str(found)[:10_000]:
                self.fail(f"{name}: a file outside the folder was read")

    def _check_rows(self, name: str, run: th.Run) -> None:
        if self.case.rows is not None and len(self.case.rows) < FRAME:
            columns = 'step, rank, hook, target, name, value, "values", call, leaf'
            found = self.call(name, lambda: run.fetch(f"select {columns} from rows"))
            if found is not None and sorted(map(comparable, found)) != sorted(map(comparable, self.case.rows)):
                self.fail(f"{name}: {len(found)} rows, not the {len(self.case.rows)} rows that were written")

    def _report(self) -> None:
        said = io.StringIO()
        out = self.folder / "report.html"
        before = None if not os.path.lexists(out) else os.lstat(out).st_ino
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = self.call("report", lambda: command(["report", "--", str(self.folder)]))
        self._judge("report", said.getvalue())
        if "Traceback" in said.getvalue():
            self.fail("report: a traceback was printed")
        if code == 0 and not (out.is_file() and not out.is_symlink() and out.lstat().st_ino != before):
            self.fail("report: the file was not written")
        elif code == 0:
            for what in judge_page(out.read_text(encoding="utf-8", errors="surrogateescape"), self.case):
                self.fail(f"report: {what}")
        elif self.innocent:
            self.fail(f"report: refused an innocent folder: {said.getvalue()[:200]}")

    def _store(self, *, opened: bool) -> None:
        """Record two steps into the folder, and read them again."""
        step = 0 if not self.case.innocent else 10**6
        store = self.call("Store", lambda: th.Store(self.folder))
        if store is None:
            return
        batches = [Batch(s, 0, emitted=[StoredRow(s, 0, "new", "new", "new", 1.0)]) for s in (step, step + 1)]
        done = [self.call("Store.write", lambda b=batch: store.write([b]) or True) for batch in batches]
        self.call("Store.keep", lambda: store.keep("plan.json", "{}"))
        done.append(self.call("Store.close", lambda: store.close() or True))
        if all(done):
            query = "select step from rows where hook = 'new' and target = 'new' and name = 'new' order by step"
            found = self.call("open_run after Store", lambda: th.open_run(self.folder).fetch(query))
            if [one for (one,) in found or ()][-2:] != [step, step + 1] and (opened or found is not None):
                self.fail(f"Store: its rows are not in the folder afterwards, only {(found or [])[:5]}")


def comparable(row: Any) -> str:
    """Return a row as text, in which every value that is not a number is alike."""
    return repr([None if isinstance(one, float) and math.isnan(one) else one for one in row])


def listing(folder: Path) -> list[tuple[Any, ...]]:
    """Return the files below a folder with their sizes, times and content."""
    found: list[tuple[Any, ...]] = []
    names = (os.path.join(top, name) for top, inner, files in os.walk(folder) for name in (*inner, *files))
    for path in map(Path, sorted(names) if not folder.is_symlink() else ()):  # there may be many files
        try:
            about = path.lstat()
        except PermissionError:  # the mode of the folder lets its files be listed only
            found.append((str(path),))
            continue
        small = stat.S_ISREG(about.st_mode) and about.st_size < 2**20 and os.access(path, os.R_OK)
        content = hashlib.sha256(path.read_bytes()).hexdigest() if small else ""
        found.append((str(path), about.st_mode, about.st_size, about.st_mtime_ns, content))
        if len(found) > 2000:
            break
    return found


# -- processes -------------------------------------------------------------------------------------------------------


def guard(reader: Reader, base: Path) -> None:
    """Report each use of the network, and each file outside the folder that is opened by Python."""

    def refuse(*arguments: Any, **options: Any) -> Any:
        reader.fail(f"the network was used: {arguments!r:.100}")
        raise OSError("there is no network")

    for name in ("connect", "connect_ex", "sendto"):
        setattr(socket.socket, name, refuse)
    for name in ("getaddrinfo", "gethostbyname", "create_connection"):
        setattr(socket, name, refuse)
    outside, inside = str(base / "outside"), str(base / "inside")

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str):
            path, flags = os.path.abspath(arguments[0]), arguments[2]
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if path.startswith(outside) or (writes and not path.startswith((inside, "/dev/"))):
                reader.fail(f"{path} was opened")
        elif event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"):
            reader.fail(f"{event} was called")

    sys.addaudithook(watch)


def fork(act: Callable[[], None]) -> int:
    """Call a function in a new process, and return the id of the process."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        act()
        code = 0
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        print(f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}: {error!s:.200}", file=sys.stderr)
    finally:
        os._exit(code)


def work(case: Case, base: Path, pipe: int) -> None:
    """Read a folder, as a forked process. Write what happens to the pipe, as lines of JSON."""
    folder = base / "inside" / case.path
    os.chdir(base / "cwd")
    if case.humble and not os.geteuid():
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    warnings.simplefilter("ignore")

    def send(what: dict[str, Any]) -> None:
        os.write(pipe, json.dumps(what).encode() + b"\n")

    reader = Reader(case, folder, send)
    guard(reader, base)
    reader.read_all()
    send({"call": "end"})


def watch(child: int, pipe: int) -> Iterator[str]:
    """Yield the failures of a process. End it if it hangs, or if it takes far too much memory."""
    text, current, since, start, used = b"", "start", time.monotonic(), resident(child), 0.0
    while True:
        ready, _, _ = select.select([pipe], [], [], 0.05)
        if ready:
            data = os.read(pipe, 1 << 16)
            if not data:
                break
            *lines, text = (text + data).split(b"\n")
            for line in map(json.loads, lines):
                if "failed" in line:
                    yield line["failed"]
                else:
                    current, since, used = line["call"], time.monotonic(), processor_time(child)
        large = resident(child) - start
        taken = time.monotonic() - since
        slow = taken > PATIENCE or (taken > SECONDS and processor_time(child) - used > BUSY)
        if large > FATAL or slow:
            os.kill(child, signal.SIGKILL)
            yield f"{current}: " + (f"uses {large >> 20} MiB" if large > FATAL else f"takes more than {SECONDS:.0f} s")
            break
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL:
        yield f"{current}: the process was ended by {signal.Signals(os.WTERMSIG(status)).name}"
    elif current != "end" and not os.WIFSIGNALED(status):
        yield f"{current}: the process ended early"


def resident(process: int) -> int:
    """Return the memory of a process in bytes."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def processor_time(process: int) -> float:
    """Return the processor time of a process in seconds."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return 0.0


def failures(case: Case, parent: Path) -> list[str]:
    """Build the folder of a case, read it, and return what goes wrong."""
    base = Path(tempfile.mkdtemp(dir=parent))
    try:
        plant(base / "outside")
        for name in ("inside", "cwd"):
            (base / name).mkdir()
        folder = base / "inside" / case.path
        folder.mkdir()
        builder = fork(lambda: case.build(folder, base / "outside"))
        if os.waitpid(builder, 0)[1]:
            return ["the folder could not be built"]
        if case.humble and not os.geteuid():
            for path in (base, *base.rglob("*")):
                os.lchown(path, 65534, 65534)
        before = listing(base / "outside"), listing(base / "cwd")
        receive, send = os.pipe()
        child = fork(lambda: work(case, base, send))
        os.close(send)
        found = list(watch(child, receive))
        os.close(receive)
        after = listing(base / "outside"), listing(base / "cwd")
        if after != before:
            changed = {Path(one[0]).name for now, then in zip(after, before) for one in {*now} ^ {*then}}
            found.append(f"files outside the folder changed: {', '.join(sorted(changed))}")
        return found
    finally:
        shutil.rmtree(base, ignore_errors=True)


def check(chosen: list[Case]) -> int:
    """Check cases, print each failure as one line, and return the number of failures."""
    torch.set_num_threads(1)
    count, start, longest = 0, time.monotonic(), (0.0, "")
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        for case in chosen:
            began = time.monotonic()
            found = failures(case, Path(place))
            if any("takes more than" in one for one in found):  # the machine may be busy
                found = failures(case, Path(place))
            longest = max(longest, (time.monotonic() - began, case.name))
            for what in dict.fromkeys(found):
                print(
                    f"{case.name}: {what}".replace("\n", " ").encode("ascii", "backslashreplace").decode(), flush=True
                )
            count += bool(found)
    seconds = time.monotonic() - start
    print(f"slowest: {longest[0]:.1f} s, {longest[1]!a}; {seconds:.0f} s in total")
    print(f"{len(chosen)} folders, {count} failures")
    return count


def main(arguments: list[str] | None = None) -> int:
    """Check all cases, or some of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="check only one case in N")
    parser.add_argument("--only", default="", help="check only the cases whose names contain a word")
    parser.add_argument("--without", default=None, help="leave out the cases whose names contain a word")
    given = parser.parse_args(arguments)
    chosen = [case for case in cases() if given.only in case.name]
    chosen = [case for case in chosen if given.without is None or given.without not in case.name]
    return 1 if check(chosen[:: given.every]) else 0


if __name__ == "__main__":
    sys.exit(main())
