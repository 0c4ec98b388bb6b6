"""Send bytes to a server in different ways, and read its answers."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from tests.support.view.fuzz_requests import Asked

#: seconds for which an answer to an incomplete request is waited for
SHORT = 0.15
#: seconds without an answer after which a connection counts as stuck, even if the machine is busy
PATIENCE = 240.0


class SilenceError(Exception):
    """There is no answer although there must be one."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(what)
        self.seconds = seconds


@dataclass(slots=True)
class Answer:
    """An answer of the server."""

    start: bytes
    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""

    def header(self, name: str) -> list[str]:
        """Return the values of a header."""
        return [value for given, value in self.headers if given == name]


class Client:
    """A client that keeps a connection open.

    Args:
        port: The port of the server.
        processor_time: Returns the processor time of the server.
        seconds: The longest time that an answer may take.
        busy: The processor time that an answer that takes too long takes at least, unless the server hangs.
    """

    def __init__(self, port: int, processor_time: Callable[[], float], seconds: float, busy: float) -> None:
        self._port, self._processor_time, self._seconds, self._busy = port, processor_time, seconds, busy
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._short = False

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._buffer = None, b""

    def begin(self, data: bytes) -> None:
        """Send bytes on an open connection, or on a new one."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(PATIENCE)
        self._socket.sendall(data)

    def ask(self, data: bytes, method: str = "GET") -> Answer:
        """Return the answer to a valid request."""
        self._short = False
        return self._kept(data, method)

    def send(self, asked: Asked) -> Iterator[Answer]:
        """Send a request in its way, and yield the answers."""
        self._short = not asked.complete
        if asked.how == "keep":
            yield self._kept(asked.data, asked.method)
            return
        self.close()
        try:
            if asked.how == "pieces":
                size = max(1, len(asked.data) // 20)
                for start in range(0, len(asked.data), size):
                    self.begin(asked.data[start : start + size])
                    time.sleep(0.001)
            else:
                self.begin(asked.data)
            assert self._socket is not None
            if asked.how == "half":
                self._socket.shutdown(socket.SHUT_WR)
            if asked.how == "drop":
                self._receive()
                self.close()
                return
            for _ in range(max(1, len(asked.parts))):
                answer = self._read(asked.method, stream=asked.how == "stream")
                if answer is None:
                    break
                yield answer
            if asked.how == "stream" and b"retry: 1000" not in self._buffer:
                self._receive()
        except OSError:  # the server closed the connection
            if asked.complete and asked.well_formed and not asked.parts:
                raise SilenceError("the connection was reset", 0.0) from None
        finally:
            self.close()

    def _kept(self, data: bytes, method: str) -> Answer:
        """Ask on the open connection. If the server has closed it in the meantime, ask on a new one."""
        for attempt in range(3):
            reused = self._socket is not None
            answer = None
            with suppress(ConnectionError):
                self.begin(data)
                answer = self._read(method)
            if answer is not None:
                if self._buffer:
                    raise SilenceError("there are bytes after the answer", 0.0)
                if "close" in answer.header("connection"):
                    self.close()
                return answer
            self.close()
            if not reused and attempt:
                break
        raise SilenceError("the connection was closed without an answer", 0.0)

    def _receive(self) -> bool:
        """Receive some bytes. Return False if the connection was closed, or if no more bytes are expected."""
        assert self._socket is not None
        began, used = time.monotonic(), self._processor_time()
        while True:
            self._socket.settimeout(SHORT if self._short else 1.0)
            try:
                some = self._socket.recv(1 << 18)
            except TimeoutError:
                if self._short:
                    return False
                taken = time.monotonic() - began
                busy = self._processor_time() - used > self._busy
                if taken > PATIENCE or (taken > 3 * self._seconds and busy):
                    raise SilenceError("there is no answer", taken) from None
                continue
            self._buffer += some
            return bool(some)

    def _until(self, end: bytes) -> bytes | None:
        """Return the bytes up to an end."""
        while end not in self._buffer:
            if not self._receive():
                return None
        found, _, self._buffer = self._buffer.partition(end)
        return found

    def _exactly(self, size: int) -> bytes | None:
        while len(self._buffer) < size:
            if not self._receive():
                return None
        found, self._buffer = self._buffer[:size], self._buffer[size:]
        return found

    def _read(self, method: str, *, stream: bool = False) -> Answer | None:
        """Read one answer. Return None if there is none."""
        start = self._until(b"\r\n\r\n")
        if start is None:
            return None
        first, *lines = start.decode("latin-1").split("\r\n")
        status = int(first.split(" ")[1])
        if status == 100:
            return self._read(method)
        pairs = (line.partition(":") for line in lines)
        answer = Answer(start + b"\r\n\r\n", status, [(name.lower(), value.strip()) for name, _, value in pairs])
        if method == "HEAD" or status in (204, 304) or "text/event-stream" in str(answer.header("content-type")):
            return answer
        body: bytes | None = b""
        if answer.header("content-length"):
            body = self._exactly(int(answer.header("content-length")[0]))
        elif answer.header("transfer-encoding") == ["chunked"]:
            while (line := self._until(b"\r\n")) and (size := int(line, 16)):
                body = (body or b"") + (self._exactly(size + 2) or b"")[:-2]
            self._exactly(2)
        else:
            while self._receive():
                pass
            body, self._buffer = self._buffer, b""
        if body is None:
            return None
        answer.body = body
        return answer
