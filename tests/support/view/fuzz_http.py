"""Make requests whose paths, headers, lengths or bytes are odd, and requests that are sent in an odd way."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from urllib.parse import quote, unquote

from tests.support.view.fuzz_requests import Asked, Facts, Requests

#: segments that stand for the folder above, and other ways to leave a folder
ESCAPES = (
    "..", "%2e%2e", "%2E.", "..%2f..", "..%5c..", "..\\..", "%252e%252e", "....//", "%c0%ae%c0%ae", "%ef%bc%8f", "..;",
    "%00", "..%00", "~", "file:", "%u002e%u002e", "..%01", "%2f%2f", "//", "\\\\host\\share", "C:%5c", "%0d%0aset:%20x",
)  # fmt: skip
AIMS = (
    "etc/passwd", "api/runs", "app.js", "index.html", "routes.py", "ordinary/part-0001-0-000001.parquet", "", ".",
    "histograms/plan.json", "proc/self/environ", "app.js%00.png", "APP.JS", "app.js/", "api", "api/", "api/runs/",
    "api//runs", "api/run%73", "api/none", "api/runs/x", ".git/config", "%61pp.js", "docs", "openapi.json", "app.css;x",
)  # fmt: skip
#: bytes that are not a request
JUNK = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /\r\n", b"\r\n" * 2000,
    b"GET / HTTP/1.0\r\n\r\n", b"A" * 100_000, b"GET /" + b"a" * 70_000, b"GET  / HTTP/1.1\r\n\r\n", b"\0" * 99,
)  # fmt: skip


class AllRequests(Requests):
    """Makes requests of every kind. A request depends only on the facts, the seed and its number."""

    def __init__(self, facts: Facts, seed: int) -> None:
        super().__init__(facts)
        self._seed = seed

    def make(self, number: int) -> Asked:
        """Return the request with this number."""
        pick = random.Random(f"{self._seed}/{number}")
        kinds: list[Callable[[random.Random], Asked]] = [
            self.valid, self.query, self.body, self._path, self._header, self._length, self._raw, self._connection,
        ]  # fmt: skip
        return pick.choices(kinds, [18, 22, 24, 10, 10, 4, 6, 6])[0](pick)

    def _path(self, pick: random.Random) -> Asked:
        """Return a request with an odd path, or without a valid token."""
        token = self.facts.token
        tokens = [
            "", token[:-1], token[1:], token + "A", token.swapcase(), token.upper(), token.lower(), "wrong",
            token + "%00", "%00" + token, token + "%20", token[:16], token * 2, "." + token, token + ".", "x/" + token,
            "%2f" + token, token[:-1] + "%", quote(token + "é"), token + ";", "\\" + token, "*", "[" + token, "-" * 32,
        ]  # fmt: skip
        if pick.random() < 0.5:
            given = pick.choice(tokens)
            path = f"/{given}/{pick.choice([*AIMS, 'api/runs', 'api/run?run=ordinary', 'api/events'])}"
        else:
            given = pick.choice([token, token, token, "".join(f"%{ord(letter):02x}" for letter in token)])
            between = "/".join(pick.choice(ESCAPES) for _ in range(pick.randint(0, 4)))
            path = f"/{given}/{between}{'/' if between else ''}{pick.choice(AIMS)}"
        path = pick.choice(
            [path] * 12 + ["/" + path, path[1:], path + f"?token={token}", "//x" + path, f"http://{self.host}{path}"]
        )
        segments = unquote(path.partition("?")[0]).split("/")
        allowed = len(segments) > 2 and segments[1] == token
        method = pick.choice(
            ["GET"] * 6 + ["HEAD", "POST", "OPTIONS", "TRACE", "PUT", "DELETE", "PATCH", "INVENTED", "get"]
        )
        body = b"" if method == "POST" else None
        return Asked("path", self.text(method, path, body), "path", method, "alone", allowed)

    def _header(self, pick: random.Random) -> Asked:
        """Return a request with odd headers."""
        host, port = self.host, self.facts.port
        good, bad, unknown = True, False, None
        origin = f"http://{host}"
        cases: list[tuple[bool | None, bool, list[tuple[str, str]]]] = [
            *((bad, False, hosts) for hosts in (
                [], [("Host", host)] * 2, [("Host", host), ("Host", "evil.example")],
                [("Host", "evil.example"), ("Host", host)],
                [("Host", "")], [("Host", host + "\0")], [("Host", host + "\x7f")],
            )),
            *((bad, True, [("Host", name)]) for name in (
                "evil.example", f"evil.example:{port}", "127.0.0.1", "localhost", f"127.0.0.1:{port + 1}",
                f"[::1]:{port}",
                f"127.1:{port}", f"2130706433:{port}", f"0.0.0.0:{port}", f"localhost.:{port}", f"127.0.0.1:0{port}",
                f"user@{host}", f"{host}, evil.example", f"evil.example/{host}", f"{host}.evil.example", f"{host}#",
            )),
            *((unknown, True, [("Host", name)]) for name in (f"LOCALHOST:{port}", f" {host} ", f"\t{host}")),
            (good, True, [("Host", f"localhost:{port}")]),
            *((bad, True, [("Host", host), ("Origin", name)]) for name in (
                "null", "", "http://evil.example", f"https://{host}", "http://127.0.0.1", f"{origin}/",
                f"{origin}.evil.example",
                f"http://evil.example#{origin}", "file://", f"{origin} http://evil.example", origin.upper(), "*",
            )),
            *((bad, True, [("Host", host), ("Origin", one), ("Origin", other)]) for one, other in (
                (origin, "null"), ("null", origin), (origin, "http://evil.example"),
            )),
            (good, True, [("Host", host), ("Origin", origin)]),
            (good, True, [("Host", host), ("Origin", f"http://localhost:{port}"), ("Sec-Fetch-Site", "same-origin")]),
            *((bad, True, [("Host", host), ("Sec-Fetch-Site", site)]) for site in (
                "cross-site", "same-site", "", "none, cross-site", "NONE", "garbage",
            )),
            *((bad, True, [("Host", host), ("Sec-Fetch-Site", one), ("Sec-Fetch-Site", other)]) for one, other in (
                ("cross-site", "none"), ("none", "cross-site"),
            )),
            *((good, True, [("Host", host), (name, value)]) for name, value in (
                ("X-Forwarded-For", "1.2.3.4"), ("X-Forwarded-For", "[::1:99999999"),
                ("X-Forwarded-For", "a:b:c, ," * 99),
                ("X-Forwarded-For", ""), ("X-Forwarded-Host", "evil.example"), ("X-Forwarded-Proto", "https"),
                ("X-Forwarded-Proto", "ws"), ("Forwarded", "host=evil.example"), ("Range", "bytes=0-1,5-,-9"),
                ("If-None-Match", "*"), ("Accept", "\xff"), ("Cookie", "=;=;\x80"), ("Accept-Encoding", "gzip"),
                ("Authorization", "Basic Og=="), ("Content-Type", "multipart/form-data; boundary="), ("X" * 200, "1"),
                ("X-Original-URL", "/"), ("X-HTTP-Method-Override", "PUT"), ("X", "y" * 8000),
                ("Expect", "100-continue"),
            )),
            *((unknown, False, [("Host", host), (name, value)]) for name, value in (
                ("X", "y" * 70_000), ("X", "a\r\n folded"), ("X Y", "1"), ("", "1"), ("X\0", "1"), ("X", "a\rb"),
                ("X", "\0"),
                ("Connection", "upgrade"), ("Connection", "close, keep-alive"), ("Transfer-Encoding", "gzip"),
                ("Transfer-Encoding", "identity"), ("Connection", "Upgrade\r\nUpgrade: websocket"),
                ("Connection", "Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk"), ("X:", ": :"),
            )),
            (unknown, False, [("Host", host), *((f"X{number}", "y" * 20) for number in range(3000))]),
        ]  # fmt: skip
        allowed, well_formed, headers = pick.choice(cases)
        if pick.random() < 0.2:
            headers = headers[::-1]
        if pick.random() < 0.3:
            headers = [(pick.choice([name.lower(), name.upper()]), value) for name, value in headers]
        path = self.home + pick.choice(["api/runs", "api/run?run=ordinary", "", "api/runs/", "none"])
        data = self.text(pick.choice(["GET", "GET", "GET", "HEAD"]), path, headers=headers)
        return Asked("header", data, "header", data[:4].decode().strip(), "alone", allowed, well_formed)

    def _length(self, pick: random.Random) -> Asked:
        """Return a request whose length or chunks are wrong."""
        body = json.dumps(self.parameters(pick, "matrix")).encode()
        home = f"{self.home if pick.random() < 0.7 else '/wrong/'}api/matrix"
        allowed = None if home.startswith(self.home) else False
        start = f"POST {home} HTTP/1.1\r\nHost: {self.host}\r\n".encode()
        size = f"{len(body):x}".encode()
        chunked = start + b"Transfer-Encoding: chunked\r\n"
        ending = pick.choice([b"", body[:5], body, body * 2])
        lengths = [b"-1", b"+5", b"0x10", b"1e3", b"1" + b"0" * 30, b"1, 2", b"5\r\nContent-Length: 6", b"", b" ", b"0",
                   b"3", b"9" * 5000, str(len(body) - 1).encode(), str(len(body) + 1).encode()]  # fmt: skip
        chunks = [
            b"-1\r\n", b"0x5\r\n", b"fffffffffffffffff\r\n", b"7fffffff\r\n" + body, b"5;" + b"x" * 9000 + b"\r\n",
            b"\r\n",
            size + b"\r\n" + body + b"XX0\r\n\r\n", b"g\r\n", size + b"\r\n" + body + b"\r\n0\r\nA: b\r\n\r\n",
            size + b"\r\n" + body + b"\r\n0\r\n\r\n", b"1\r\n{\r\n" * 50, b"0\r\n\r\n",
            size + b";a=b\r\n" + body + b"\r\n0\r\nbad\r\n\r\n",
            b"1\r\n{\r\n" + b"zz\r\n",
        ]  # fmt: skip
        data = pick.choice(
            [
                start + b"Content-Length: " + pick.choice(lengths) + b"\r\n\r\n" + ending,
                chunked + b"\r\n" + pick.choice(chunks),
                chunked + b"Content-Length: 5\r\n\r\n" + pick.choice(chunks),
                start + b"\r\n" + body,
            ]
        )
        how = pick.choice(["alone", "pieces", "half"])
        return Asked("length", data, "length", "POST", how, allowed, well_formed=False, complete=False)

    def _raw(self, pick: random.Random) -> Asked:
        """Return random bytes, or a valid request with changed bytes."""
        if pick.random() < 0.4:
            data = pick.choice([*JUNK, *(pick.randbytes(size) for size in (1, 10, 300, 20_000))])
            return Asked("raw", data, "raw", "?", "half", False, well_formed=False, complete=False)
        changed = bytearray(self.valid(pick).data)
        for _ in range(pick.choice([1, 1, 2, 5, 30])):
            place = pick.randrange(len(changed))
            match pick.randrange(4):
                case 0:
                    changed[place] = pick.randrange(256)
                case 1:
                    changed[place] ^= 1 << pick.randrange(8)
                case 2:
                    del changed[place : place + pick.choice([1, 1, 9])]
                    changed += b"\n"
                case _:
                    changed[place:place] = pick.choice([b"\0", b"\r\n", b" ", b"\xff", pick.randbytes(3)])
        return Asked("raw", bytes(changed), "raw", "?", "half", None, well_formed=False, complete=False)

    def _connection(self, pick: random.Random) -> Asked:
        """Return a valid request that is sent in an odd way."""
        asked = self.valid(pick, "curve" if pick.random() < 0.3 else "")
        match pick.randrange(6):
            case 0:
                asked.how = "pieces"
            case 1:
                wide = {**self.parameters(pick, "matrix"), "rows": [[0, 1]] * 1000, "columns": 2000}
                data = pick.choice([self.text("GET", self.home + "app.js"), self.post(json.dumps(wide).encode())])
                asked = Asked("drop", data, "drop", how="drop")
            case 2:
                asked = Asked("stream", self.text("GET", self.home + "api/events"), "events", how="stream")
            case 3:
                asked.data = asked.data.replace(b"HTTP/1.1", b"HTTP/1.0", 1)
                asked.how = "alone"
            case 4:
                asked.data, asked.how, asked.valid = asked.data[: pick.randrange(1, len(asked.data))], "half", False
                asked.complete = asked.well_formed = False
            case _:
                many = [self.valid(pick) for _ in range(pick.randint(2, 12))]
                end = pick.choice([b"", b"", b"bad\r\n\r\n", b"GET"])
                data = b"".join(one.data for one in many) + end
                asked = Asked("pipeline", data, "pipeline", "?", "alone", parts=many)
        asked.kind = asked.how if asked.kind == "valid" else asked.kind
        return asked
