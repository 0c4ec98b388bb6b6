"""Send odd requests to a real server of the user interface, and report every answer that is wrong."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.support.view.fuzz_answers import Checker, Tally, same
from tests.support.view.fuzz_connection import Client, SilenceError
from tests.support.view.fuzz_http import AllRequests
from tests.support.view.fuzz_requests import Asked, Facts
from tests.support.view.fuzz_runs import Writer, digest, write_runs

#: a request may take so many seconds; on a busy machine, its processor time counts
SECONDS, BUSY = 10.0, 5.0
MAX_MEMORY, FATAL_MEMORY = 2**30, 6 * 2**30
THREADS, KNOWN_EVERY = 4, 500


class Server:
    """Runs `tenterhook view` as a subprocess."""

    def __init__(self, folder: Path, log: Path) -> None:
        self._log = log
        command = [sys.executable, "-m", "tenterhook", "view", str(folder), "--no-browser", "--port", "0"]
        with log.open("wb") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        assert self.process.stdout is not None
        found = re.search(rb"http://127\.0\.0\.1:(\d+)/([\w-]+)/", self.process.stdout.readline())
        assert found is not None, log.read_text()
        self.port, self.token = int(found[1]), found[2].decode()

    def status(self, name: str) -> int:
        """Return a number from the status of the process, in bytes if it is a size."""
        with suppress(OSError):
            found = re.search(rf"{name}:\s+(\d+)( kB)?", Path(f"/proc/{self.process.pid}/status").read_text())
            return int(found[1]) * (1024 if found[2] else 1) if found else 0
        return 0

    def processor_time(self) -> float:
        """Return the processor time of the server in seconds."""
        with suppress(OSError):
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    def stop(self) -> tuple[int, str]:
        """End the server with SIGINT, and return its exit code and what it printed as errors."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
        return self.process.returncode, self._log.read_text(errors="replace")


class Fuzzer:
    """Sends requests on several threads."""

    def __init__(self, server: Server, seed: int) -> None:
        self.server = server
        self._client = Client(server.port, server.processor_time, SECONDS, BUSY)
        ids = [one["id"] for one in self._get(f"/{server.token}/api/runs")]
        self.facts = Facts(server.port, server.token, [self._summary(id) for id in ids])
        self.tally = Tally(self.facts, seed)
        self._checker = Checker(self.facts, self.tally)
        self.requests = AllRequests(self.facts, seed)
        self._known = [self.requests.known(number) for number in range(24)]
        for _ in range(2):  # the first answers may come from rows, and later ones from memory
            self._before = [self._client.ask(one.data, one.method) for one in self._known]
            time.sleep(0.5)

    def _get(self, path: str) -> Any:
        return json.loads(
            self._client.ask(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.server.port}\r\n\r\n".encode()).body
        )

    def _summary(self, id: str) -> dict[str, Any]:
        return {**self._get(f"/{self.server.token}/api/run?run={quote(id, safe='')}"), "id": id}

    def run(self, numbers: range) -> None:
        """Send the requests with these numbers."""
        threads = [threading.Thread(target=self._work, args=(numbers[place::THREADS],)) for place in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self, numbers: range) -> None:
        client = Client(self.server.port, self.server.processor_time, SECONDS, BUSY)
        for number in numbers:
            if self.server.process.poll() is not None:
                self.tally.fault("the server ended", f"before request {number}")
                return
            asked = self.requests.make(number)
            self.tally.kinds[asked.kind] += 1
            where = f"request {number} ({asked.kind}, {asked.how})"
            try:
                self._send(client, number, asked)
                if number % KNOWN_EVERY < THREADS:
                    self._check_known(client, number)
            except SilenceError as error:
                client.close()
                self.tally.answered(asked, "none", error.seconds, number)
                self.tally.fault(f"{error} ({asked.route})", where, asked.data)
            except Exception as error:
                client.close()
                self.tally.fault(f"the fuzzer failed: {error!r:.100}", where, asked.data)
            if number and number % 2000 == 0:
                print(f"{number:,} requests, {self.tally.peak / 2**20:,.0f} MiB", flush=True)
        client.close()

    def _send(self, client: Client, number: int, asked: Asked) -> None:
        """Send a request, and check its answers."""
        began, used = time.monotonic(), self.server.processor_time()
        count, status = 0, 0
        for answer in client.send(asked):
            one = asked.parts[count] if asked.parts else asked
            status, seconds = answer.status, time.monotonic() - began
            self.tally.answered(one, str(status), seconds, number)
            self._checker.check(number, one, answer)
            if seconds > SECONDS and self.server.processor_time() - used > BUSY:
                self.tally.fault(f"a request takes {SECONDS:.0f} s ({asked.route})", f"request {number}", asked.data)
            began, count = time.monotonic(), count + 1
        if count < max(1, len(asked.parts)) and asked.complete and asked.how != "drop" and status < 500:
            self.tally.fault(
                f"the connection was closed without an answer ({asked.kind})", f"request {number}", asked.data
            )
        elif not count:
            self.tally.answered(asked, "none", 0.0, number)

    def _check_known(self, client: Client, number: int) -> None:
        """Check that a known request is answered as at the beginning, and that the server is not too large."""
        for place in range(number // KNOWN_EVERY % len(self._known), len(self._known), 6):
            one, before = self._known[place], self._before[place]
            if before.status >= 500:  # this is reported as another fault
                continue
            after = client.ask(one.data, one.method)
            self.tally.kinds["known"] += 1
            if (after.status, before.status) != (200, 200) or not same(one.route, before.body, after.body):
                self.tally.fault(
                    f"a known request has another answer ({one.route})", f"after request {number}", one.data, after.body
                )
        self.measure(number)

    def measure(self, number: int) -> None:
        """Check the memory of the server."""
        self.tally.peak = max(self.tally.peak, self.server.status("VmHWM"))
        if self.tally.peak > MAX_MEMORY:
            self.tally.fault("the server takes more than 1 GiB", f"before request {number}")
        if self.server.status("VmRSS") > FATAL_MEMORY:
            self.server.process.kill()


@contextmanager
def _held(server: Server) -> Iterator[None]:
    """Hold two streams, a half request and an unread answer open."""
    clients = [Client(server.port, server.processor_time, SECONDS, BUSY) for _ in range(4)]
    for client, path in zip(clients, ("api/events", "api/events", None, "app.js")):
        start = f"GET /{server.token}/{path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        client.begin((start + ("\r\n" if path else "")).encode())
    time.sleep(1.0)
    yield
    for client in clients:
        client.close()


def fuzz(folder: Path, numbers: range, seed: int, log: Path) -> Tally:
    """Send requests to a server that shows the runs in a folder, and return what was found."""
    before = digest(folder)
    server, writer = Server(folder, log), Writer(folder)
    writer.start()
    try:
        fuzzer = Fuzzer(server, seed)
        tally = fuzzer.tally
        idle = server.status("Threads"), len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
        fuzzer.run(numbers)
        fuzzer.measure(numbers.stop)
        time.sleep(2.0)
        after = server.status("Threads"), len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
        print(f"threads and open files of the server: {idle} at the beginning, {after} at the end")
        if server.process.poll() is None:
            with _held(server):
                code, errors = server.stop()
    finally:
        writer.stop()
        if server.process.poll() is None:
            server.process.kill()
    code, errors = server.process.returncode, log.read_text(errors="replace")
    if code:
        tally.fault(f"the server ended with code {code}", "at the end")
    for found in re.finditer(r"(?m)^(?:[\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b|ERROR:).*", errors):
        kind = re.sub(r"[0-9]+", "N", found[0])[:100]
        around = errors[max(0, found.start() - 500) :].encode()
        tally.fault(f"the server printed: {kind}", "at some time", answer=around)
    if errors and not any(kind.startswith("the server printed") for kind in tally.faults):
        tally.fault("the server printed something", "at some time", answer=errors.encode())
    if digest(folder) != before:
        changed = {Path(key).name for key, _ in digest(folder).items() ^ before.items()}
        tally.fault(f"files of the runs changed: {sorted(changed)}", "at the end")
    if writer.failed is not None:
        raise writer.failed
    return tally


def main(arguments: list[str] | None = None) -> int:
    """Run the fuzzer, and print what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("count", nargs="?", type=int, default=20_000, metavar="COUNT")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="send only the request with this number")
    parser.add_argument("--runs", type=Path, help="use the runs in a folder that --write made")
    parser.add_argument("--write", type=Path, help="only write the runs into a folder")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        folder = given.write or given.runs or Path(place) / "runs"
        if not given.runs:
            write_runs(folder)
        if given.write:
            return 0
        numbers = range(given.count) if given.only is None else range(given.only, given.only + 1)
        began = time.monotonic()
        tally = fuzz(folder, numbers, given.seed, Path(place) / "errors")
    seconds = time.monotonic() - began
    print(
        f"{len(numbers):,} requests in {seconds:,.0f} s, {len(numbers) / seconds:,.0f} per second: {dict(tally.kinds)}"
    )
    print("answers:", ", ".join(f"{status}: {count:,}" for status, count in sorted(tally.statuses.items())))
    print("by route:", ", ".join(f"{route}: {count:,}" for route, count in sorted(tally.routes.items())))
    for kind, found in tally.faults.items():
        print(f"{found.count:,} times: {kind}")
    print(f"slowest: {tally.slowest[0]:.1f} s, {tally.slowest[1]}")
    print(f"peak memory: {tally.peak / 2**20:,.0f} MiB")
    print(f"{len(tally.faults)} kinds of faults")
    return 1 if tally.faults else 0
