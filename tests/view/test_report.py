"""The report holds the data of the run, and a real browser draws it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tenterhook as th
from tenterhook.record import Batch, Row
from tenterhook.view import report
from tenterhook.view.app_files import app_file
from tenterhook.view.data.run_data import RunData
from tenterhook.view.file_data import file_run
from tests.support.needs import needs
from tests.support.view.report_data import data_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record a run that has a modifier, histograms, a NaN, a trip and a finding."""
    folder = tmp_path_factory.mktemp("run")
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(11)), nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    plan = [
        th.Hook("grads", on="**", at="grad_final", do=th.stats()),
        th.Hook("clip", on="**.weight", at="grad_final", do=th.clip_norm(1e-3)),
        th.Hook("updates", on="**", at="update", do=th.ratio()),
        th.Hook("magnitudes", on="**", at="grad_final", do=th.histogram(), when=th.When(every=10)),
        th.Hook("nonfinite", on="**", at="grad_final", do=th.watch_nonfinite()),
        th.Hook("never", on="0.0.bias", at="grad_final", do=th.stats(), when=th.When(start=1000)),
    ]
    store = th.Store(folder)
    with th.attach(model, plan, optimizer=optimizer, sinks=[store, th.Flight(folder / "flights")]) as rig:
        for step in range(40):
            optimizer.zero_grad()
            loss = model(torch.randn(4, 6)).square().mean()
            (loss * float("nan") if step == 30 else loss).backward()
            optimizer.step()
            if step == 30:
                for p in model.parameters():
                    p.data.nan_to_num_()
        store.keep("findings.json", th.check(rig).to_json())
    return folder


def data(page: Path) -> list[dict[str, Any]]:
    return list(data_of(page)["runs"])


def test_the_page_holds_the_numbers_of_the_run(folder: Path, tmp_path: Path):
    report(folder, tmp_path / "report.html")
    (run,) = data(tmp_path / "report.html")
    assert (run["first"], run["last"]) == (0, 39)
    assert run["targets"][:3] == ["0.0.weight", "0.0.bias", "1.0.weight"] and run["targets"][-1] == "11.bias"
    assert run["types"]["0.0"] == "Linear"
    matrix = next(m for m in run["matrices"] if (m["hook"], m["name"]) == ("grads", "rms"))
    assert (matrix["first"], matrix["each"], matrix["columns"], matrix["ranges"]) == (0, 1, 40, [[0, 24]])
    cells = memoryview(base64.b64decode(matrix["cells"])).cast("H")
    curve = th.open_run(folder).curve("grads", "11.weight", "rms")
    row = cells[22 * 40 : 23 * 40]
    for step, value in zip(curve.steps, curve.values, strict=True):
        if step == 30 or value == 0:
            assert row[step] == (1 if step == 30 else 2)
        else:
            shown = matrix["low"] * (matrix["high"] / matrix["low"]) ** ((row[step] - 3) / 65532)
            assert shown == pytest.approx(value, rel=1e-3)
    assert {(m["hook"], m["name"]) for m in run["matrices"]} >= {("updates", "ratio"), ("clip", "change")}
    assert [f["step"] for f in run["flights"]] == [30]
    assert {h["hook"]: h["changed"] > 0 for h in run["ledger"]}["clip"]
    assert run["tone"] == "sick" and "step 30" in run["sentence"]
    (histogram,) = run["histogramData"]
    everything = histogram["blocks"][0]
    assert (everything["range"], everything["steps"]) == ([0, 24], [0, 10, 20, 30])
    elements = 11 * 42 + 7
    assert [sum(counts) for counts in everything["counts"]] == [elements, elements, elements, 0]


def test_steps_are_grouped_if_there_are_too_many_cells(folder: Path):
    run = file_run(RunData("run", folder), max_cells=24 * 10)
    (matrix,) = run.matrices
    assert (matrix.hook, matrix.name, matrix.first, matrix.each, matrix.columns) == ("grads", "norm", 0, 4, 10)
    values = th.open_run(folder).curve("grads", "0.0.weight", "norm").values
    cells = memoryview(base64.b64decode(matrix.cells)).cast("H")
    shown = matrix.low * (matrix.high / matrix.low) ** ((cells[0] - 3) / 65532)
    assert shown == pytest.approx(max(values[:4]), rel=1e-3)
    assert cells[7] == 1  # one of the four steps of this column is not finite


def test_several_runs_are_compared(tmp_path: Path):
    for name in ("a", "b"):
        write_run(tmp_path / name)
    report(tmp_path, tmp_path / "report.html")
    ((difference),) = data_of(tmp_path / "report.html")["differences"]
    assert (difference["a"], difference["b"]) == ("a", "b")
    assert difference["difference"]["equal"] is None and "record both" in difference["difference"]["sentence"]


def test_names_from_a_run_cannot_end_the_script(tmp_path: Path):
    store = th.Store(tmp_path / "run")
    store.write([Batch(0, 0, {}, [Row(0, 0, "h", "</script><script>alert(1)</script>", "x", 1.0)])])
    report(tmp_path / "run", tmp_path / "report.html")
    assert "<script>alert" not in (tmp_path / "report.html").read_text()
    (run,) = data(tmp_path / "report.html")
    assert run["targets"] == ["</script><script>alert(1)</script>"]


def test_the_name_of_a_folder_cannot_add_elements_to_the_page(tmp_path: Path):
    name = "<img src=x onerror=alert(1)>"
    write_run(tmp_path / name)
    report(tmp_path / name, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert name not in text
    assert "<title>&lt;img src=x onerror=alert(1)&gt;</title>" in text


def test_the_policy_allows_only_the_parts_of_the_page(tmp_path: Path):
    write_run(tmp_path / "run")
    report(tmp_path / "run", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    found = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    assert found is not None
    policy = dict(one.strip().split(" ", 1) for one in found[1].split(";"))

    def digest(tag: str) -> str:
        (body,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        return f"'sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}'"

    assert policy == {
        "default-src": "'none'",
        "style-src": digest("style"),
        "script-src": digest("script"),
        "img-src": "data: blob:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_flight_reports_have_a_limit(tmp_path: Path):
    th.Store(tmp_path).write([Batch(0, 0, {}, [Row(0, 0, "h", "t", "n", 1.0)])])
    for number in range(2):
        (tmp_path / "flights" / str(number)).mkdir(parents=True)
        text = json.dumps({"path": "p", "step": 1, "reason": "x" * 9_000_000, "suspects": []})
        (tmp_path / "flights" / str(number) / "flight.json").write_text(text)
    with pytest.raises(th.StoreError, match=r"the flight reports in .* have more than 16,777,216 bytes"):
        report(tmp_path, tmp_path / "report.html")


def test_links_to_other_folders_are_not_followed(tmp_path: Path):
    for name in ("runs/mine", "outside", "outside/flights/step-1"):
        write_run(tmp_path / name)
    (tmp_path / "outside" / "flights" / "step-1" / "flight.json").write_text(
        '{"path": "p", "step": 1, "reason": "r", "suspects": []}'
    )
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "runs" / "mine" / "flights").symlink_to(tmp_path / "outside" / "flights")
    report(tmp_path / "runs", tmp_path / "report.html")
    (run,) = data(tmp_path / "report.html")
    assert run["title"] == "mine" and run["flights"] == []


def write_run(folder: Path) -> None:
    th.Store(folder).write([Batch(0, 0, {}, [Row(0, 0, "h", "t", "x", 1.0)])])


def test_a_folder_without_a_run_is_refused(tmp_path: Path):
    with pytest.raises(th.StoreError, match="no recorded run in"):
        report(tmp_path, tmp_path / "report.html")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium")
    if chromium is None and not os.environ.get("CI"):
        pytest.skip("Chromium is not installed")
    needs("playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.mark.programs
@pytest.mark.parametrize("width", [390, 1400])
def test_a_browser_draws_it(folder: Path, tmp_path: Path, browser: Any, width: int):
    report(folder, tmp_path / "report.html")
    page, said = open_page(browser, tmp_path / "report.html", width)
    assert "step 30" in page.inner_text("main")
    for name in ("Flow", "Hooks", "Compare", "Overview"):
        page.get_by_role("tab", name=name).or_(page.get_by_role("link", name=name)).first.click()
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.goto((tmp_path / "report.html").as_uri() + "#page=flow")
    page.reload()
    page.wait_for_selector("canvas")
    assert said == []


def open_page(browser: Any, path: Path, width: int = 1240) -> tuple[Any, list[str]]:
    """Open a report, and return the page and the list of what it says on the console."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.goto(path.as_uri())
    page.wait_for_selector("main h1, main h2")
    return page, said


def hostile_names(port: int) -> list[str]:
    """Return names that would contact a server or run a script if they became markup."""
    url = f"http://127.0.0.1:{port}"
    return [
        f"<img src={url}/img>",
        f"<img src=x onerror=fetch('{url}/onerror')>",
        f"</script><script src={url}/script></script>",
        f"<a href='{url}/link'>link</a>",
        f"<span style='background:url({url}/span)'>span</span>",
        f'"><link rel=stylesheet href={url}/style>',
        f"url({url}/url)",
        f"<svg><image href='{url}/svg'/></svg>",
        f"'-fetch('{url}/quote')-'",
        f"${{fetch('{url}/template')}}",
        f"<base href={url}/><b>bold</b><br><sub>sub</sub>",
        f"<meta http-equiv=refresh content='0;url={url}/meta'>",
    ]


@pytest.mark.programs
def test_no_name_makes_a_browser_contact_a_server(tmp_path: Path, browser: Any):
    from tenterhook.record import Batch, Row

    with socket.create_server(("127.0.0.1", 0)) as server:
        names = hostile_names(server.getsockname()[1])
        store = th.Store(tmp_path / "run")
        rows = [Row(step, 0, hook, target, n, 1.0 + step) for step in range(3) for hook in names[:4] for target in names
                for n in ("rms", names[0])]  # fmt: skip
        rows += [Row(1, 0, "tenterhook", names[1], "trip", 1.0)]
        for step in range(3):
            store.write([Batch(step, 0, {}, [row for row in rows if row.step == step])])
        finding = {"code": names[0], "title": names[1], "severity": names[2], "evidence": names[3], "remedy": names[4]}
        finding |= {"hook": names[5], "target": names[6], "point": names[7], "by": names[8], "place": names[9]}
        store.keep("findings.json", json.dumps({"findings": [finding]}))
        store.keep("plan.json", json.dumps({"why": names[0], "hooks": names}))
        store.keep("ledger.json", json.dumps({"tenterhook": 1, "ledger": [{"hook": names[0], "at": names[1],
            "do": names[2], "sites": 1, "due": 1, "fired": 1, "changed": 0, "failed": 0,
            "skipped": {names[3]: 1}, "dormant": {names[4]: 1}, "measured": 1}]}))  # fmt: skip
        store.close()
        report(tmp_path / "run", tmp_path / "report.html")
        page, said = open_page(browser, tmp_path / "run" / ".." / "report.html")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        own = (tmp_path / "report.html").as_uri()
        for name in ("overview", "flow", "hooks", "compare"):
            page.goto(f"{own}#page={name}")
            page.reload()
            page.wait_for_timeout(500)
            for canvas in page.locator("canvas").all()[:2]:
                box = canvas.bounding_box()
                if box is not None:
                    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 5)  # shows the name of a target
                    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 5)
            grown = "img, iframe, object, base, sub, meta[http-equiv=refresh], main link"
            assert page.eval_on_selector_all(grown, "all => all.map(one => one.outerHTML.slice(0, 200))") == []
            wrong = "all => all.map(one => one.href).filter(href => !/^(https|file):/.test(href))"
            assert page.eval_on_selector_all("a", wrong) == []
        remote = [url for url in asked if not url.startswith((own, "data:", "blob:"))]
        assert (remote, said) == ([], [])
        server.settimeout(0.1)
        with pytest.raises(TimeoutError):
            server.accept()


def test_the_script_contains_the_licenses_of_its_libraries():
    root = Path(__file__).parents[2]
    notice = app_file("app.js").decode().partition("*/")[0]
    for library in json.loads((root / "ui" / "package.json").read_text())["dependencies"]:
        assert f"{library}\n\nThe MIT License" in notice
