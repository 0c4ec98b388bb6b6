"""Ask the server of the user interface without a network: a request is a call of the application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tenterhook.view.server.library import Library
from tenterhook.view.server.routes import make_app

TOKEN, PORT = "token", 8000
HOST = (b"host", b"127.0.0.1:8000")


def ask(
    app: Any, path: str, *, method: str = "GET", query: bytes = b"", body: bytes = b"", headers: Any = (HOST,)
) -> tuple[int, dict[str, str], bytes]:
    """Return the status, the headers and the body of the answer to a request."""
    sent: list[dict[str, Any]] = []
    received = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> dict[str, Any]:
        return next(received, {"type": "http.disconnect"})

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode("utf-8", "surrogateescape"), "query_string": query, "root_path": "",
        "headers": list(headers), "client": ("127.0.0.1", 1), "server": ("127.0.0.1", PORT),
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    start = sent[0]
    given = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], given, b"".join(one.get("body", b"") for one in sent[1:])


def ask_everything(folder: Path) -> list[tuple[int, str]]:
    """Ask for everything about the runs in a folder. Return the status of each answer, and what was asked for."""
    return list(_asked(make_app(Library([folder]), TOKEN, PORT)))


def _asked(app: Any) -> Iterator[tuple[int, str]]:
    def get(what: str, query: str = "") -> Any:
        status, _, body = ask(app, f"/{TOKEN}/api/{what}", query=query.encode())
        return status, json.loads(body)

    status, heads = get("runs")
    yield status, "runs"
    for head in heads[:3] if status == 200 else ():
        run = quote(head["id"], safe="", errors="surrogateescape")
        status, summary = get("run", f"run={run}")
        yield status, "run"
        if status != 200:
            continue
        first, last = summary["first"], summary["last"]
        for series in summary["series"][:4]:
            hook, name = (quote(series[key], safe="", errors="surrogatepass") for key in ("hook", "name"))
            start = series["ranges"][0][0]
            query = f"run={run}&hook={hook}&name={name}&target={start}&first={first}&last={last}&points=50"
            if -(2**53) < first <= last < 2**53:
                yield get("curve", query)[0], "curve"
            each = max(1, (last - first + 1) // 40)
            for of in ("maximum", "mean"):
                asked = {
                    "run": head["id"], "hook": series["hook"], "name": series["name"], "first": first, "each": each,
                    "rows": series["ranges"][:4000], "columns": 42, "of": of,
                }  # fmt: skip
                if each < 2**50 and abs(first) < 2**53:
                    yield ask(app, f"/{TOKEN}/api/matrix", method="POST", body=json.dumps(asked).encode())[0], "matrix"
        for one in summary["histograms"][:2]:
            start, end = one["ranges"][0]
            hook = quote(one["hook"], safe="", errors="surrogatepass")
            yield get("histogram", f"run={run}&hook={hook}&start={start}&end={end}")[0], "histogram"
        if summary["targets"]:
            yield get("numbers", f"run={run}&target=0")[0], "numbers"
