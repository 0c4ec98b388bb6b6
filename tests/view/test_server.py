"""The server answers its own page, and refuses everybody else with a typed answer."""

from __future__ import annotations

import gc
import http.client
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenterhook as th
from tenterhook.record import Batch, Row
from tenterhook.view.server import serve as serve_module
from tenterhook.view.server.library import Library
from tenterhook.view.server.routes import MAX_BODY, make_app
from tests.support.view.asking import HOST, PORT, TOKEN, ask, ask_everything

LEDGER, VERDICTS = '{"tenterhook": 1, "ledger": []}', '{"tenterhook": 1, "verdicts": []}'


def write_run(folder: Path, steps: int = 3) -> th.Store:
    store = th.Store(folder, linger=0)
    for step in range(steps):
        rows = [Row(step, 0, "grads", target, "norm", step + 1.0) for target in ("a.weight", "a.bias", "b")]
        store.write([Batch(step, 0, {}, rows)])
    return store


@pytest.fixture
def app(tmp_path: Path) -> Any:
    write_run(tmp_path / "run").close()
    return make_app(Library([tmp_path]), TOKEN, PORT)


MATRIX = {"run": "run", "hook": "grads", "name": "norm", "rows": [[0, 1], [1, 3]], "first": 0, "each": 2, "columns": 2}


def test_everything_about_a_run_can_be_asked_for(tmp_path: Path, app: Any):
    answers = ask_everything(tmp_path)
    assert {status for status, _ in answers} == {200}
    assert {what for _, what in answers} == {"runs", "run", "curve", "matrix", "numbers"}
    _, _, body = ask(app, f"/{TOKEN}/api/matrix", method="POST", body=json.dumps(MATRIX).encode())
    assert np.frombuffer(body, "<f4").tolist() == [2.0, 3.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("status", "why", "change"),
    [
        (403, "the address has no valid token", {"path": "/wrong/api/runs"}),
        (403, "the address has no valid token", {"path": "/"}),
        (403, "the address has no valid token", {"path": f"//{TOKEN}/api/runs"}),
        (403, "the request is for another host", {"headers": [(b"host", b"evil.example:8000")]}),
        (403, "the request is for another host", {"headers": [(b"host", b"127.0.0.1")]}),
        (403, "the request is for another host", {"headers": []}),
        (403, "the request is for another host", {"headers": [HOST, HOST]}),
        (403, "the request comes from another site", {"headers": [HOST, (b"origin", b"http://evil.example")]}),
        (403, "the request comes from another site", {"headers": [HOST, (b"origin", b"null")]}),
        (403, "the request comes from another site", {"headers": [HOST, (b"sec-fetch-site", b"cross-site")]}),
        (403, "the request comes from another site",
         {"headers": [HOST, (b"sec-fetch-site", b"none"), (b"sec-fetch-site", b"cross-site")]}),
        (404, "there is no such page", {"path": f"/{TOKEN}/../../etc/passwd"}),
        (404, "there is no such page", {"path": f"/{TOKEN}/report.py"}),
        (404, "there is no such page", {"path": f"/{TOKEN}/api/runs/"}),
        (404, "there is no run 'other'", {"path": f"/{TOKEN}/api/run", "query": b"run=other"}),
        (404, "there is no run '../run'", {"path": f"/{TOKEN}/api/run", "query": b"run=../run"}),
        (400, "the request has no run", {"path": f"/{TOKEN}/api/run"}),
        (400, "the target in the request is not", {"path": f"/{TOKEN}/api/numbers", "query": b"run=run&target=-1"}),
        (422, "there is no such target", {"path": f"/{TOKEN}/api/numbers", "query": b"run=run&target=9"}),
        (400, "the request is not valid", {"path": f"/{TOKEN}/api/curve", "query": b"run=run"}),
        (405, "this address does not accept PUT", {"path": f"/{TOKEN}/api/runs", "method": "PUT"}),
    ],
)  # fmt: skip
def test_other_requests_are_refused(app: Any, status: int, why: str, change: dict[str, Any]):
    found, headers, body = ask(app, **{"path": f"/{TOKEN}/api/runs", **change})
    answer = json.loads(body)
    assert (found, headers["content-type"]) == (status, "application/json")
    assert why in answer["error"] and answer["remedy"]


@pytest.mark.parametrize(
    ("status", "why", "change"),
    [
        (400, "Object missing required field", {"run": None}),
        (400, "unknown field", {"more": 1}),
        (400, "Expected `int`", {"columns": 1.5}),
        (400, "Invalid enum value", {"of": "median"}),
        (422, "at most 2,000,000 cells", {"rows": [[0, 1]] * 4000, "columns": 2000}),
        (422, "each row is a range", {"rows": [[0, 4]]}),
        (422, "`each` is from 1", {"each": 0}),
    ],
)
def test_a_matrix_that_is_too_large_or_wrong_is_refused(app: Any, status: int, why: str, change: dict[str, Any]):
    asked = {key: value for key, value in {**MATRIX, **change}.items() if value is not None}
    found, _, body = ask(app, f"/{TOKEN}/api/matrix", method="POST", body=json.dumps(asked).encode())
    assert found == status and why in json.loads(body)["error"]


def test_a_large_body_is_refused(app: Any):
    found, _, body = ask(app, f"/{TOKEN}/api/matrix", method="POST", body=b" " * (MAX_BODY + 1))
    assert found == 413 and "1,048,576 bytes" in json.loads(body)["error"]


def test_a_bug_is_answered_and_printed(app: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def fail(*given: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("tenterhook.view.data.run_data.RunData.numbers", fail)
    status, _, body = ask(app, f"/{TOKEN}/api/numbers", query=b"run=run&target=0")
    told = {"error": "tenterhook failed: ZeroDivisionError: planted", "remedy": "report it as a bug"}
    assert (status, json.loads(body)) == (500, told)
    assert "Traceback" in capsys.readouterr().err


def test_every_answer_has_the_headers(app: Any):
    for path in (f"/{TOKEN}/", f"/{TOKEN}/app.js", f"/{TOKEN}/api/runs", "/wrong/", f"/{TOKEN}/none"):
        _, headers, _ = ask(app, path)
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert "unsafe" not in headers["content-security-policy"]
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
        assert headers["cache-control"] == "no-store"


def test_a_damaged_run_is_reported_and_the_others_are_shown(tmp_path: Path):
    write_run(tmp_path / "good").close()
    write_run(tmp_path / "bad").close()
    for part in (tmp_path / "bad").glob("part-*"):
        part.write_bytes(b"PAR1" + b"\0" * 100)
    app = make_app(Library([tmp_path]), TOKEN, PORT)
    assert [one["id"] for one in json.loads(ask(app, f"/{TOKEN}/api/runs")[2])] == ["bad", "good"]
    found, _, body = ask(app, f"/{TOKEN}/api/run", query=b"run=bad")
    assert found == 422 and "cannot be read" in json.loads(body)["error"]
    assert ask(app, f"/{TOKEN}/api/run", query=b"run=good")[0] == 200


def test_a_run_is_found_in_a_folder_that_did_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tenterhook.view.server.library.SEARCH_EVERY", 0.0)
    library = Library([tmp_path / "runs"])
    library.open_newest()
    assert library.heads() == []
    write_run(tmp_path / "runs" / "first").close()
    assert [head.id for head in library.heads()] == ["first"]


def test_a_file_is_refused(tmp_path: Path):
    (tmp_path / "run").write_text("")
    with pytest.raises(th.StoreError, match="no recorded run"):
        Library([tmp_path / "run"])


UNWATCHED = "There is no verdict, because nothing watched the training in steps 0 to 2."
CUT = "The recording ends in step 2 without a verdict: its process was killed, or it did not detach the rig."


@pytest.mark.parametrize(
    ("reports", "names", "live", "sentence"),
    [
        ([], {"ledger.json": LEDGER}, False, UNWATCHED),
        ([], {}, False, CUT),
        ([], {}, True, "The training is running."),
        ([], {"verdicts.json": VERDICTS}, True, "The training is running. Nothing went wrong so far."),
        ([], {"verdicts.json": VERDICTS, "ledger.json": LEDGER}, False, "Nothing went wrong in steps 0 to 2."),
        (["KeyboardInterrupt"], {}, False, "The training was stopped in step 1 (KeyboardInterrupt)."),
        (["ValueError: x"], {}, False, "A flight report was written in step 1: ValueError: x."),
    ],
)  # fmt: skip
def test_the_sentence_about_a_run(tmp_path: Path, reports: list[str], names: dict[str, str], live: bool, sentence: str):
    store = write_run(tmp_path / "run")
    for name, text in names.items():
        store.keep(name, text)
    for reason in reports:
        flight = th.Flight(tmp_path / "run" / "flights")
        flight.record(Batch(1, 0, {}, []))
        flight.fail(reason)
        flight.close()
    if not live:
        store.close()
    try:
        assert Library([tmp_path]).open("run").summary().sentence == sentence
    finally:
        store.close()


def test_a_run_that_was_resumed_and_killed_has_not_ended(tmp_path: Path):
    store = write_run(tmp_path / "run")
    store.keep("ledger.json", LEDGER)
    store.keep("verdicts.json", VERDICTS)
    store.close()
    resumed = write_run(tmp_path / "run", steps=5)
    # A killed process leaves no lock, and a copy has none either.
    shutil.copytree(tmp_path / "run", tmp_path / "copy", ignore=shutil.ignore_patterns(".writer-*"))
    resumed.close()
    sentence = "The recording ends in step 4 without a verdict: its process was killed, or it did not detach the rig."
    assert Library([tmp_path]).open("copy").summary().sentence == sentence


def test_an_address_without_its_last_slash_leads_to_the_page(app: Any):
    status, headers, _ = ask(app, f"/{TOKEN}")
    assert (status, headers["location"]) == (307, f"{TOKEN}/")
    assert ask(app, "/wrong")[0] == 403


@contextmanager
def serving(path: Path, *, lines: int) -> Iterator[list[str]]:
    """Start `tenterhook view`, and give the first lines that it prints."""
    command = [sys.executable, "-m", "tenterhook", "view", str(path), "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield [server.stdout.readline() for _ in range(lines)]
    finally:
        server.send_signal(signal.SIGINT)
        said = server.communicate(timeout=30)[1]
    assert (server.returncode, said) == (0, "")


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Serve a run that is being written, and return the address."""
    store = write_run(tmp_path / "run")
    with serving(tmp_path, lines=1) as (line,):
        assert "http://127.0.0.1:" in line
        yield line.split()[-1]
    store.close()


@pytest.mark.programs
@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_without_runs_is_served_and_named(tmp_path: Path, exists: bool):
    path = tmp_path / "runs"
    if exists:
        path.mkdir()
    with serving(path, lines=3) as (address, nothing, remedy):
        assert address.startswith("tenterhook view: http://127.0.0.1:")
        assert nothing.rstrip() == (
            f"tenterhook view: there is no recorded run in {path}"
            if exists
            else f"tenterhook view: the folder {path} does not exist"
        )
        assert remedy.rstrip() == "  remedy: start a training that writes to it; the page shows its run"


def test_an_interrupt_before_the_server_runs_ends_it_without_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
):
    def interrupted(coroutine: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(serve_module.asyncio, "run", interrupted)
    serve_module.serve([tmp_path], browser=False)
    gc.collect()
    assert [str(one.message) for one in recwarn] == []


@pytest.mark.programs
def test_new_rows_are_announced_within_two_seconds(tmp_path: Path, address: str):
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/[\w-]{32}/)", address)
    assert found is not None
    port, path = int(found[1]), found[2]
    asking = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    asking.request("GET", f"{path}api/run?run=run")
    summary = json.loads(asking.getresponse().read())
    assert (summary["last"], summary["live"], summary["tone"]) == (2, True, "unknown")
    listening = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    listening.request("GET", f"{path}api/events")
    events = listening.getresponse()
    assert next_change(events)["last"] == 2
    store = th.Store(tmp_path / "run", linger=0)
    written = time.monotonic()
    store.write([Batch(7, 0, {}, [Row(7, 0, "grads", "b", "norm", 9.0)])])
    assert next_change(events)["last"] == 7
    assert time.monotonic() - written < 2.0
    asking.request("POST", f"{path}api/matrix", json.dumps({**MATRIX, "first": 7, "each": 1, "columns": 1}))
    assert np.frombuffer(asking.getresponse().read(), "<f4").tolist()[1:] == [9.0]
    listening.close()
    asking.close()


def next_change(events: http.client.HTTPResponse) -> dict[str, Any]:
    """Return the next change that the server announces."""
    while True:
        line = events.readline().decode()
        if line.startswith("data: "):
            return json.loads(line.removeprefix("data: "))


@pytest.mark.programs
def test_a_port_that_is_in_use_is_refused(tmp_path: Path, address: str):
    port = re.findall(r":(\d+)/", address)[0]
    command = [sys.executable, "-m", "tenterhook", "view", str(tmp_path), "--no-browser", "--port", port]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"tenterhook: port {port} cannot be used: Address already in use\n  remedy: choose another port"
    )
