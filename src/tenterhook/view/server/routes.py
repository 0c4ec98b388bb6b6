"""Serve the user interface and the data of runs to browsers on this machine."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenterhook.errors import TenterhookError
from tenterhook.view.app_files import app_file
from tenterhook.view.data.messages import CurveRequest, MatrixRequest
from tenterhook.view.server.library import Library

T = TypeVar("T")
#: maximum size of the body of a request
MAX_BODY = 2**20
#: seconds between two looks at the run folders
LOOK_EVERY = 0.5
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
_TYPES = {
    "index.html": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
}


class RequestError(Exception):
    """A request that is not answered, with its status and what to do."""

    def __init__(self, status: int, what: str, remedy: str) -> None:
        super().__init__(what)
        self.status, self.what, self.remedy = status, what, remedy


def make_app(library: Library, token: str, port: int) -> ASGIApp:
    """Return the application that answers requests whose path begins with the token.

    Args:
        library: The runs.
        token: A secret that only the reader of the printed address knows.
        port: The port on which the application is served. Requests for another host or from another origin are refused.
    """
    api = _Api(library)
    routes = [
        Route("/{token}", _redirect, methods=["GET"]),
        Route("/{token}/", _page, methods=["GET"]),
        Route("/{token}/{name}", _page, methods=["GET"]),
        Route("/{token}/api/runs", api.runs, methods=["GET"]),
        Route("/{token}/api/run", api.run, methods=["GET"]),
        Route("/{token}/api/matrix", api.matrix, methods=["POST"]),
        Route("/{token}/api/curve", api.curve, methods=["GET"]),
        Route("/{token}/api/histogram", api.histogram, methods=["GET"]),
        Route("/{token}/api/numbers", api.numbers, methods=["GET"]),
        Route("/{token}/api/difference", api.difference, methods=["GET"]),
        Route("/{token}/api/events", api.events, methods=["GET"]),
    ]
    handlers: Any = {RequestError: _refuse, HTTPException: _refuse_route}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Guard(app, token, port)


class Guard:
    """Refuses every request that does not come from the page that this server served."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app = app
        self._token = token.encode()
        hosts = [f"{host}:{port}" for host in ("127.0.0.1", "localhost")]
        self._hosts = {host.encode() for host in hosts}
        self._origins = {f"http://{host}".encode() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [(name, value) for name, value in message["headers"] if name.lower() != b"server"]
                message["headers"] = [*kept, *((name.encode(), value.encode()) for name, value in HEADERS.items())]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that is refused, or None."""
        given: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            given.setdefault(name.lower(), []).append(value)
        if len(given.get(b"host", ())) != 1 or given[b"host"][0] not in self._hosts:
            return _error(403, "the request is for another host", "open the address that `tenterhook view` printed")
        if any(origin not in self._origins for origin in given.get(b"origin", ())):
            return _error(403, "the request comes from another site", "open the address that `tenterhook view` printed")
        if any(site not in (b"none", b"same-origin") for site in given.get(b"sec-fetch-site", ())):
            return _error(403, "the request comes from another site", "open the address that `tenterhook view` printed")
        path = scope["path"].encode("utf-8", "surrogateescape").split(b"/")
        if len(path) < 2 or not secrets.compare_digest(path[1], self._token):
            return _error(403, "the address has no valid token", "open the address that `tenterhook view` printed")
        return None


class _Api:
    """Answers the requests for data. Reading runs on threads, so that a slow folder does not delay other answers."""

    def __init__(self, library: Library) -> None:
        self._library = library

    async def runs(self, request: Request) -> Response:
        return await _json(self._library.heads)

    async def run(self, request: Request) -> Response:
        id = _one(request, "run")
        return await _json(lambda: self._library.open(id).summary())

    async def matrix(self, request: Request) -> Response:
        asked = await _decoded(request, MatrixRequest)
        cells = await _read(lambda: self._library.open(asked.run).matrix(asked).astype("<f4", copy=False).tobytes())
        return Response(cells, media_type="application/octet-stream")

    async def curve(self, request: Request) -> Response:
        asked = _query(request, CurveRequest)
        return await _json(lambda: self._library.open(asked.run).curve(asked))

    async def histogram(self, request: Request) -> Response:
        id, hook = _one(request, "run"), _one(request, "hook")
        places = (_number(request, "start"), _number(request, "end"))
        return await _json(lambda: self._library.open(id).histogram(hook, places))

    async def numbers(self, request: Request) -> Response:
        id, target = _one(request, "run"), _number(request, "target")
        return await _json(lambda: self._library.open(id).numbers(target))

    async def difference(self, request: Request) -> Response:
        a, b = _one(request, "a"), _one(request, "b")
        return await _json(lambda: self._library.difference(a, b))

    async def events(self, request: Request) -> Response:
        return StreamingResponse(self._changes(), media_type="text/event-stream")

    async def _changes(self) -> AsyncIterator[bytes]:
        """Yield an event for each run that changed, until the browser closes the connection."""
        seen: dict[str, Any] = {}
        yield b"retry: 1000\n\n"
        while True:
            for change in await run_in_threadpool(self._library.changes):
                if seen.get(change.run) != change:
                    seen[change.run] = change
                    yield b"event: change\ndata: " + msgspec.json.encode(change) + b"\n\n"
            await asyncio.sleep(LOOK_EVERY)
            yield b": alive\n\n"


async def _redirect(request: Request) -> Response:
    """Add the slash at the end of the address, because the addresses in the page are relative to it."""
    return Response(status_code=307, headers={"location": f"{request.path_params['token']}/"})


async def _page(request: Request) -> Response:
    """Return a file of the user interface."""
    name = request.path_params.get("name", "index.html")
    if name not in _TYPES:
        raise RequestError(404, "there is no such page", "open the address that `tenterhook view` printed")
    return Response(app_file(name), media_type=_TYPES[name])


async def _json(act: Callable[[], Any]) -> Response:
    """Call a function on a thread, and return its result as JSON."""
    return Response(await _read(lambda: msgspec.json.encode(act())), media_type="application/json")


async def _read(act: Callable[[], T]) -> T:
    try:
        return await run_in_threadpool(act)
    except KeyError as error:
        raise RequestError(404, f"there is no run {str(error.args[0])[:200]!r}", "load the page again") from error
    except TenterhookError as error:
        raise RequestError(422, error.fact, error.remedy or "") from error
    except OSError as error:
        raise RequestError(422, f"the run folder cannot be read: {error.strerror}", "check its permissions") from error
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)  # uvicorn prints nothing at this level
        raise RequestError(500, f"tenterhook failed: {type(error).__name__}: {error}", "report it as a bug") from error


async def _decoded(request: Request, kind: type[T]) -> T:
    """Decode the JSON body of a request."""
    body = bytearray()
    async for some in request.stream():
        body += some
        if len(body) > MAX_BODY:
            raise RequestError(413, f"the request has more than {MAX_BODY:,} bytes", "ask for fewer rows")
    try:
        return msgspec.json.decode(bytes(body), type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RequestError(400, f"the request is not valid: {str(error)[:200]}", "load the page again") from error


def _query(request: Request, kind: type[T]) -> T:
    """Decode the query of a request."""
    try:
        return msgspec.convert(dict(request.query_params), type=kind, strict=False)
    except (msgspec.MsgspecError, ValueError) as error:
        raise RequestError(400, f"the request is not valid: {str(error)[:200]}", "load the page again") from error


def _one(request: Request, name: str) -> str:
    value = request.query_params.get(name)
    if value is None:
        raise RequestError(400, f"the request has no {name}", "load the page again")
    return value


def _number(request: Request, name: str) -> int:
    text = _one(request, name)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise RequestError(
            400, f"the {name} in the request is not a place in the list of targets", "load the page again"
        )
    return int(text)


def _error(status: int, what: str, remedy: str) -> Response:
    return Response(msgspec.json.encode({"error": what, "remedy": remedy}), status, media_type="application/json")


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return _error(error.status, error.what, error.remedy)


async def _refuse_route(request: Request, error: Exception) -> Response:
    """Refuse a path or a method that no route has."""
    assert isinstance(error, HTTPException)
    remedy = "open the address that `tenterhook view` printed"
    if error.status_code == 405:
        return _error(405, f"this address does not accept {request.method[:20]}", remedy)
    return _error(error.status_code, "there is no such page", remedy)
