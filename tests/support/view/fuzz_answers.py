"""Judge the answers of a server that is fuzzed, and count what is wrong."""

from __future__ import annotations

import json
import math
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

import numpy as np

from tenterhook.view.server.routes import HEADERS
from tests.support.view.fuzz_connection import Answer
from tests.support.view.fuzz_requests import ROUTES, Asked, Facts
from tests.support.view.fuzz_runs import LIVE, MARK

PARSER = b"Invalid HTTP request received."
STATUSES = {200, 307, 400, 403, 404, 405, 413, 422}


@dataclass(slots=True)
class Found:
    """A kind of fault: how often it was found, and how to find it again."""

    count: int
    example: str


class Tally:
    """Counts requests, answers and faults. Several threads may call it."""

    def __init__(self, facts: Facts, seed: int) -> None:
        self._facts, self._seed, self._lock = facts, seed, threading.Lock()
        self.statuses: Counter[str] = Counter()
        self.routes: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.faults: dict[str, Found] = {}
        self.slowest = (0.0, "")
        self.peak = 0

    def shown(self, data: bytes) -> str:
        """Return a request as text, with the words TOKEN and PORT."""
        text = ascii(data)[2:-1].replace(self._facts.token, "TOKEN").replace(f":{self._facts.port}", ":PORT")
        return text if len(text) < 900 else f"{text[:600]} ... {text[-200:]} ({len(data):,} bytes)"

    def fault(self, kind: str, where: str, data: bytes = b"", answer: bytes = b"") -> None:
        """Count a fault, and print the first one of its kind."""
        with self._lock:
            if kind in self.faults:
                self.faults[kind].count += 1
                return
            example = f"{where}, seed {self._seed}: {self.shown(data)}"
            if answer:
                example += f"  -> {self.shown(answer[:600])}"
            self.faults[kind] = Found(1, example)
            print(f"fault: {kind}: {example}", flush=True)

    def answered(self, asked: Asked, status: str, seconds: float, number: int) -> None:
        """Count an answer, or that there was none."""
        with self._lock:
            self.statuses[status] += 1
            self.routes[f"{asked.route} {status}"] += 1
            if seconds > self.slowest[0]:
                self.slowest = (seconds, f"request {number}: {self.shown(asked.data)[:200]}")


class Checker:
    """Judges answers."""

    def __init__(self, facts: Facts, tally: Tally) -> None:
        self._tally, self._facts = tally, facts

    def check(self, number: int, asked: Asked, answer: Answer) -> None:
        """Report everything that is wrong with an answer."""
        for what in self._problems(asked, answer):
            self._tally.fault(
                what, f"request {number} ({asked.kind}, {asked.how})", asked.data, answer.start + answer.body
            )

    def _problems(self, asked: Asked, answer: Answer) -> Iterator[str]:
        status, body = answer.status, answer.body
        if status == 400 and body in (PARSER, b"") and answer.header("content-type") == ["text/plain; charset=utf-8"]:
            if asked.well_formed:
                yield "the HTTP parser refused a request that is well-formed"
            return
        if status >= 500:
            yield f"status {status} ({asked.route})"
            return
        if status not in STATUSES:
            yield f"unexpected status {status}"
        for name, value in HEADERS.items():
            if answer.header(name) != [value]:
                yield f"the header {name} of an answer with status {status} is {answer.header(name)}"
        if answer.header("server"):
            yield "the answer names the server"
        if asked.allowed is False:
            if status in (200, 307) or (asked.well_formed and status != 403):
                yield f"status {status} for a request that is not allowed ({asked.kind})"
            if MARK.encode() in body or b'"id"' in body:
                yield "an answer to a request that is not allowed has data of a run"
        if asked.allowed and status == 403:
            yield "a request that is allowed was refused"
        if re.search(rb"root:x:|PAR1|Traceback|site-packages|\.py\"", body) and asked.route != "page":
            yield "an answer contains a file or a trace"
        for location in answer.header("location"):
            if not re.match(rf"http://(127\.0\.0\.1|localhost):{self._facts.port}/", location):
                yield "an answer redirects to another address"
        if status >= 400 and asked.method != "HEAD":
            yield from self._refusal_problems(asked, answer)
        elif status == 200 and asked.how != "stream" and asked.route in ROUTES:
            yield from self._content_problems(asked, answer)
        if asked.valid and status != 200:
            yield f"status {status} for a valid request ({asked.route})"

    def _refusal_problems(self, asked: Asked, answer: Answer) -> Iterator[str]:
        """Yield what is wrong with a refusal of the application."""
        if answer.header("content-type") != ["application/json"]:
            yield f"an answer with status {answer.status} is not JSON, but {answer.header('content-type')}"
            return
        try:
            refusal = json.loads(answer.body)
        except ValueError:
            yield f"an answer with status {answer.status} is not valid JSON"
            return
        if set(refusal) != {"error", "remedy"} or not all(isinstance(v, str) and v for v in refusal.values()):
            yield f"an answer with status {answer.status} lacks an error or a remedy"
            return
        if len(answer.body) > 9000:
            yield "the text of a refusal is long"
        was = asked.about.get("was", asked.about)
        missing = re.match(r"there is no run '(.*)", refusal["error"], re.S)
        if missing and was and missing[1].removesuffix("'")[:8] not in _shown_as(asked):
            yield f"a refusal names a run that was not asked for ({asked.route})"
        run = next((s for s in self._facts.summaries if s["id"] == was.get("run")), None)
        if (
            "cannot be read" in refusal["error"]
            and run is not None
            and "targets" in run
            and not run["id"].startswith("damaged")
        ):
            why = re.sub("[0-9]+", "N", refusal["error"])[:120]
            yield f"a run that is not damaged cannot be read ({asked.route}: {why})"

    def _content_problems(self, asked: Asked, answer: Answer) -> Iterator[str]:
        """Yield what is wrong with the content of an answer."""
        if asked.route == "page" or asked.method == "HEAD":
            return
        if asked.route == "matrix":
            if asked.cells is not None and len(answer.body) != 4 * asked.cells:
                yield "a matrix has another size"
            return
        try:
            content = json.loads(answer.body, parse_constant=lambda name: 1 / 0)
        except (ValueError, ZeroDivisionError):
            yield f"an answer is not valid JSON ({asked.route})"
            return
        if asked.route == "curve":
            steps, given = content["steps"], asked.about
            if not len(steps) == len(content["low"]) == len(content["high"]):
                yield "the columns of a curve have different lengths"
            if any(low is not None and low > high for low, high in zip(content["low"], content["high"])):
                yield "a curve has a low value above the high one"
            if "points" in given and (len(steps) > given["points"] or len(content["nonfinite"]) > given["points"]):
                yield "a curve has more points than were asked for"
            if "points" in given and any(not given["first"] <= step <= given["last"] for step in steps):
                yield "a curve has steps that were not asked for"
            if steps != sorted(set(steps)):
                yield "the steps of a curve are not in order"


def _shown_as(asked: Asked) -> str:
    """Return the texts of a request in which the name of a run can be."""
    text = asked.data.decode("utf-8", "replace")
    plain = text + unquote_plus(text)
    with suppress(ValueError):
        plain += str(json.loads(text.partition("\r\n\r\n")[2]).get("run"))
    return plain + repr(plain)


def same(route: str, one: bytes, other: bytes) -> bool:
    """Return True if two answers are equal, except for rounding."""
    if route == "page" or one == other:
        return one == other
    if route == "matrix":
        return len(one) == len(other) and np.allclose(
            np.frombuffer(one, "<f4"), np.frombuffer(other, "<f4"), rtol=1e-4, equal_nan=True
        )
    return _same(json.loads(one), json.loads(other))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        if one.get("id") == LIVE:
            return True
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-4)
    return bool(one == other)
