"""Make requests for the server of the user interface: valid ones, and ones whose parameters were changed."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from urllib.parse import quote

from tests.support.view.fuzz_runs import DAMAGED, ODD_NAMES

ROUTES = ("page", "runs", "run", "matrix", "curve", "histogram", "numbers", "difference", "events")
#: the parameters of each route whose parameters are in the query
QUERIES = {
    "runs": (),
    "run": ("run",),
    "curve": ("run", "hook", "name", "target", "first", "last", "points"),
    "histogram": ("run", "hook", "start", "end"),
    "numbers": ("run", "target"),
    "difference": ("a", "b"),
}
NUMBERS = (
    0, 1, -1, 2, 3, 7, 100, 1999, 2000, 2001, 4000, 4001, 4096, 10**9, 2**31 - 1, 2**31, -(2**31), 2**32, 2**50 - 1,
    2**50, 2**53 - 1, 2**53, -(2**53), 1 - 2**53, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64 - 1, 2**64,
    10**30, -(10**30), 10**400,
)  # fmt: skip
WORDS = (
    "", " ", "0.5", "-0", "+1", "1e3", "1e308", "1e400", "NaN", "nan", "inf", "-Infinity", "null", "None", "true", "[]",
    "{}", "0x10", "1_0", "٣", "²", "¼", "1,000", "\0", "\n", "\r\nx: y", "a" * 300, "9" * 5000, "../..", "%s%n", "%",
    "*", "?", "[a]", "' or 1=1 --", "\u202e", "\ufeff1", "🏃", ".", "..", "tenterhook", "part-0001-0-000001.parquet",
)  # fmt: skip
#: bytes of a query that Python cannot write as text
ENCODED = (
    "%",
    "%zz",
    "%00",
    "%ED%A0%80",
    "%C0%AF",
    "%FF%FE",
    "%F4%90%80%80",
    "%E2%80%AE",
    "+",
    "%2B",
    "%u0041",
    "%250",
)
#: JSON that Python cannot write
RAW_JSON = (
    "NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1E+2", "01", "+1", ".5", "1.", "--1", "0x1", "2.0", "1e2",
    '"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"\\x"', '"\n"', "'a'", "undefined", "tru", "[", "{", "}", "",
    "9" * 5000, "1e" + "9" * 400, "{}", '{"a":{}}', "[[[]]]", "[null]", "[[0]]", "[[0,1,2]]", "[[0.5,1]]",
    '[["0","1"]]',     '"\u202e🏃"', '"' + "a" * 70_000 + '"',
)  # fmt: skip


@dataclass(slots=True)
class Facts:
    """Holds what requests are made from: the address, and the answers to the first valid requests."""

    port: int
    token: str
    summaries: list[dict[str, Any]]


@dataclass(slots=True)
class Asked:
    """A request, how it is sent, and what is known about its answer."""

    kind: str
    data: bytes
    route: str = ""
    method: str = "GET"
    #: keep: on an open connection; alone: on a new one; pieces, drop, half, stream: see `Client.send`
    how: str = "keep"
    #: False: the answer may have no data. None: not known
    allowed: bool | None = True
    #: if True, every refusal must come from the application
    well_formed: bool = True
    #: True if the request is complete, so that an answer must come
    complete: bool = True
    #: the requests in the data if there are several
    parts: list[Asked] = field(default_factory=list)
    #: facts about the request: `valid` is True if it must be answered with 200, `cells` is the size of a matrix
    valid: bool = False
    cells: int | None = None
    about: dict[str, Any] = field(default_factory=dict)


class Requests:
    """Makes requests that are valid, and requests whose parameters were changed."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.host = f"127.0.0.1:{facts.port}"
        self.home = f"/{facts.token}/"

    def known(self, number: int) -> Asked:
        """Return a valid request for a run that does not change."""
        for attempt in range(1000):
            asked = self.valid(random.Random(f"known {number} {attempt}"), ROUTES[number % 8])
            if asked.valid and "growing" not in str(asked.about):
                return asked
        raise AssertionError("there is no valid request")

    # -- parts of requests -------------------------------------------------------------------------------------------

    def text(
        self, method: str, path: str, body: bytes | None = None, headers: list[tuple[str, str]] | None = None
    ) -> bytes:
        """Return the bytes of a request. The default headers name the host, and give the length of the body."""
        given = [("Host", self.host)] if headers is None else headers
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given)]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogatepass") + (body or b"")

    def parameters(self, pick: random.Random, route: str) -> dict[str, Any]:
        """Return valid parameters for a route. For a run that cannot be read, they are made up."""
        facts = self.facts
        wanting = [one for one in facts.summaries if one.get("histograms")] if route == "histogram" else facts.summaries
        # Few runs stay open in the server, and to open one takes long.
        near = [one for one in wanting if one["id"] not in (*ODD_NAMES, *DAMAGED)]
        summary = pick.choice(near if pick.random() < 0.93 else wanting)
        if route == "difference":
            alike = [one for one in near if one["id"].startswith("diff")]
            one, other = (pick.choice(alike if pick.random() < 0.8 else near) for _ in "ab")
            return {"a": one["id"], "b": other["id"]}
        series = pick.choice(summary.get("histograms" if route == "histogram" else "series") or [{}])
        hook, name = series.get("hook", "grads"), series.get("name", "norm")
        targets = max(1, len(summary.get("targets", ())))
        first, last = summary.get("first", 0), summary.get("last", 3)
        start = pick.randrange(targets)
        if route == "curve":
            begin = pick.choice([first, first - 3, pick.randint(first, last)])
            return {
                "run": summary["id"], "hook": hook, "name": name, "target": start, "first": begin,
                "last": pick.choice([last, pick.randint(begin, max(begin, last)), last + 10**6]),
                "points": pick.choice([1, 2, 50, 4000]),
            }  # fmt: skip
        if route == "matrix":
            cuts = sorted({0, targets, *(pick.randrange(targets) for _ in range(pick.choice([0, 1, 5, 60])))})
            rows = [[a, b] for a, b in pairwise(cuts)]
            if pick.random() < 0.2:
                rows = [sorted(pick.sample(range(targets + 1), 2)) for _ in range(pick.choice([1, 3, 20]))]
            columns = pick.choice([1, 2, 40, 300])
            return {
                "run": summary["id"], "hook": hook, "name": name, "rows": rows, "columns": columns,
                "first": pick.choice([first, first - 1, pick.randint(first, last)]),
                "each": pick.choice([1, 2, 3, 16, min(2**50 - 1, max(1, (last - first) // columns))]),
                "of": pick.choice(["maximum", "mean"]),
            }  # fmt: skip
        end = pick.randint(start + 1, targets)
        return {"run": summary["id"], "hook": hook, "start": start, "end": end, "target": start}

    def _readable(self, parameters: dict[str, Any]) -> bool:
        """Return True if the runs of a request can be read, and compared."""
        fine = {one["id"] for one in self.facts.summaries if not one["id"].startswith("damaged")}
        if "a" in parameters:
            return parameters["a"] != parameters["b"] and all(parameters[name].startswith("diff") for name in "ab")
        return all(parameters[name] in fine for name in ("run",) if name in parameters)

    def get(self, route: str, given: list[tuple[str, Any]]) -> bytes:
        """Return a request with a query. Text that begins with `raw:` is not encoded."""
        query = "&".join(f"{_escaped(name)}={_escaped(value)}" for name, value in given)
        return self.text("GET", f"{self.home}api/{route}{'?' if given else ''}{query}")

    def post(self, body: bytes, **headers: str) -> bytes:
        """Return a request with a body."""
        return self.text("POST", f"{self.home}api/matrix", body, [("Host", self.host), *headers.items()])

    # -- kinds of requests -------------------------------------------------------------------------------------------

    def valid(self, pick: random.Random, route: str = "") -> Asked:
        """Return a request that has an answer."""
        route = route or pick.choice(ROUTES[:-1])
        if route == "page":
            page = pick.choice(["", "index.html", "app.js", "app.css"]) if pick.random() < 0.1 else "index.html"
            return Asked("valid", self.text("GET", self.home + page), route, valid=True)
        given = self.parameters(pick, route)
        valid = self._readable(given)
        if route == "matrix":
            cells = len(given["rows"]) * given["columns"]
            return Asked(
                "valid", self.post(json.dumps(given).encode()), route, "POST", valid=valid, cells=cells, about=given
            )
        query = [(name, given[name]) for name in QUERIES[route]]
        return Asked("valid", self.get(route, query), route, valid=valid, about=given)

    def query(self, pick: random.Random) -> Asked:
        """Return a request with a query that was changed in one to three places."""
        route = pick.choice([route for route in QUERIES if route != "runs"])
        given = self.parameters(pick, route)
        query: list[tuple[str, Any]] = [(name, given[name]) for name in QUERIES[route]]
        for _ in range(pick.randint(1, 3)):
            place = pick.randrange(len(query)) if query else 0
            name = query[place][0] if query else "run"
            value = pick.choice(
                [pick.choice(NUMBERS), pick.choice(WORDS), "raw:" + pick.choice(ENCODED), pick.random() * 9]
            )
            match pick.randrange(9):
                case 0 if query:
                    query.pop(place)
                case 1:
                    query.insert(place, (name, value))
                case 2:
                    query.append((pick.choice(["more", "", "RUN", "run ", "of", "raw:%72un", "a" * 300]), value))
                case 3 if query:
                    query[place] = (name, "raw:" + "".join(f"%{byte:02x}" for byte in str(query[place][1]).encode()))
                case 4:
                    pick.shuffle(query)
                case 5 if query:
                    query[place] = (name, str(query[place][1]).removeprefix("raw:") + pick.choice(WORDS))
                case _ if query:
                    query[place] = (name, value)
        return Asked("query", self.get(route, query), route, about={"was": given})

    def body(self, pick: random.Random) -> Asked:
        """Return a request with a body that was changed."""
        given = self.parameters(pick, "matrix")
        for _ in range(pick.randint(0, 2)):
            name = pick.choice(list(given))
            given[name] = pick.choice([pick.choice(NUMBERS), pick.choice(WORDS), pick.random() * 9, None, [], {}, True])
        rows = given.get("rows")
        if isinstance(rows, list) and pick.random() < 0.4:
            odd = [0, 1, 1, 2, -1, 2**31, 2**53, 2**63, 2**64, MOST := 2**40]
            match pick.randrange(6):
                case 0:
                    given["rows"] = rows * pick.choice([2, 3, 4096 // max(1, len(rows))])  # ranges that overlap
                case 1:
                    given["rows"] = [row[::-1] for row in rows]
                case 2:
                    given["rows"] = [[pick.choice(odd), pick.choice(odd)] for _ in range(pick.choice([1, 4]))]
                case 3:
                    given["rows"] = [[0, 1]] * pick.choice([0, 1000, 4095, 4096, 4097])
                case 4:
                    given["rows"] = pick.choice([[row] for row in rows] or [[]])
                case _:
                    given["rows"] = rows[:1] * 40 if pick.random() < 0.9 else [[0, MOST]] * 4096
        if pick.random() < 0.2:
            given["columns"] = pick.choice([0, 1, 488, 489, 1999, 2000, 2001])
            given["each"] = pick.choice([1, 2**20, 2**49, 2**50 - 1, 2**50])
        body = json.dumps(given, ensure_ascii=pick.random() < 0.5)
        if pick.random() < 0.3:
            name = pick.choice(list(given))
            start = body.index(f'"{name}": ') + len(name) + 4
            body = (
                body[:start] + pick.choice(RAW_JSON) + body[start + len(json.dumps(given[name], ensure_ascii=False)) :]
            )
        data = body.encode("utf-8", "surrogatepass")
        if pick.random() < 0.15:
            data = self._odd_body(pick, data)
        if len(data) > 2**16 and pick.random() < 0.8:
            data = data[: pick.randrange(2**16)]
        return Asked("body", self.post(data), "matrix", "POST", about={"was": given})

    def _odd_body(self, pick: random.Random, data: bytes) -> bytes:
        """Return a body that is not only wrong in one value."""
        deep = pick.choice([50, 900, 1100, 100_000, 500_000])
        match pick.randrange(11):
            case 0:
                return data[: pick.randrange(len(data))]
            case 1:
                return pick.choice([b"[", b'{"a":', b'{"rows":[', b"[[1],", b'"', b"{"]) * deep
            case 2:
                return data[:-1] + b', "rows": ' + b"[" * deep + b"]" * deep + b"}"
            case 3:
                return data + b" " * pick.choice([1, 2**20 - len(data), 2**20 - len(data) + 1, 2**21])
            case 4:
                return b'{"run": "' + b"a" * (2**20 - 11) + b'"}'
            case 5:
                return data[:-1] + b', "rows": [' + b"[0,1]," * 170_000 + b"[0,1]]}"
            case 6:
                return data.decode("utf-8", "replace").encode(pick.choice(["utf-16", "utf-32", "utf-8-sig"]))
            case 7:
                return data.replace(b'"run"', b'"run": "a", "run"', 1)
            case 8:
                return data[:-1] + b"," + b",".join(b'"k%d":0' % number for number in range(60_000)) + b"}"
            case 9:
                return data.replace(b"norm", pick.choice([b"\xed\xa0\x80", b"\xc0\xaf", b"\xff", b"\0"]))
            case _:
                return b""


def _escaped(value: Any) -> str:
    """Return a value for a query."""
    text = str(value) if not isinstance(value, int) or abs(value) < 10**4000 else "9" * 4000
    return text.removeprefix("raw:") if text.startswith("raw:") else quote(text, safe="", errors="surrogatepass")
