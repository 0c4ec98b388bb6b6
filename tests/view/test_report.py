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
from tenterhook.view.series import natural_key
from tests.support.needs import needs


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
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_page_holds_the_numbers_of_the_run(folder: Path, tmp_path: Path):
    needs("plotly")
    report(folder, tmp_path / "report.html")
    (run,) = data(tmp_path / "report.html")
    assert run["steps"] == {"first": 0, "last": 39, "columns": 40, "each": 1}
    matrix = next(m for m in run["matrices"] if (m["hook"], m["name"]) == ("grads", "rms"))
    assert matrix["targets"] == sorted(matrix["targets"], key=natural_key)
    assert matrix["targets"][4:6] == ["2.0.bias", "2.0.weight"] and matrix["targets"][-1] == "11.weight"
    cells = memoryview(base64.b64decode(matrix["cells"])).cast("H")
    curve = th.open_run(folder).curve("grads", "11.weight", "rms")
    row = cells[23 * 40 : 24 * 40]
    for step, value in zip(curve.steps, curve.values, strict=True):
        if step == 30 or value == 0:
            assert row[step] == (1 if step == 30 else 2)
        else:
            shown = matrix["low"] * (matrix["high"] / matrix["low"]) ** ((row[step] - 3) / 65532)
            assert shown == pytest.approx(value, rel=1e-3)
    assert {(m["hook"], m["name"]) for m in run["matrices"]} >= {("updates", "ratio"), ("clip", "change")}
    assert [f["step"] for f in run["flights"]] == [30]
    assert {h["hook"]: h["changed"] > 0 for h in run["ledger"]}["clip"]
    (histogram,) = run["histograms"]
    everything = histogram["blocks"]["all"]
    assert everything["steps"] == [0, 10, 20, 30]
    elements = 11 * 42 + 7
    assert [sum(counts) for counts in everything["counts"]] == [elements, elements, elements, 0]


def test_steps_are_grouped_if_there_are_too_many_cells(folder: Path):
    from tenterhook.view.series import choose_bins, matrices, read_contents

    run = th.open_run(folder)
    contents = read_contents(run)
    bins = choose_bins(contents, max_cells=24 * 10)
    assert bins.data() == {"first": 0, "last": 39, "columns": 10, "each": 4}
    (matrix,) = matrices(run, contents, bins, max_cells=24 * 10)
    assert (matrix.hook, matrix.name, len(matrix.cells)) == ("grads", "rms", 24 * 10 * 2)
    values = th.open_run(folder).curve("grads", "0.0.bias", "rms").values
    first = memoryview(matrix.cells).cast("H")[0]
    shown = matrix.low * (matrix.high / matrix.low) ** ((first - 3) / 65532)
    assert shown == pytest.approx(max(values[:4]), rel=1e-3)
    assert memoryview(matrix.cells).cast("H")[7] == 1  # one of the four steps of this column is not finite


def test_names_from_a_run_cannot_end_the_script(tmp_path: Path):
    needs("plotly")
    store = th.Store(tmp_path / "run")
    store.write([Batch(0, 0, {}, [Row(0, 0, "h", "</script><script>alert(1)</script>", "x", 1.0)])])
    report(tmp_path / "run", tmp_path / "report.html")
    assert "<script>alert" not in (tmp_path / "report.html").read_text()
    (run,) = data(tmp_path / "report.html")
    assert run["matrices"][0]["targets"] == ["</script><script>alert(1)</script>"]


def test_the_name_of_a_folder_cannot_add_elements_to_the_page(tmp_path: Path):
    needs("plotly")
    name = "<img src=x onerror=alert(1)>"
    write_run(tmp_path / name)
    report(tmp_path / name, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert name not in text
    assert "<title>&lt;img src=x onerror=alert(1)&gt;</title>" in text


def test_the_policy_allows_only_the_scripts_of_the_page(tmp_path: Path):
    needs("plotly")
    write_run(tmp_path / "run")
    report(tmp_path / "run", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    found = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    assert found is not None
    policy = dict(one.strip().split(" ", 1) for one in found[1].split(";"))
    scripts = policy.pop("script-src").split(" ")
    assert policy == {
        "default-src": "'none'",
        "style-src": "'unsafe-inline'",
        "img-src": "data: blob:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    bodies = re.findall(r"<script(?: id=\"plotly\" type=\"text/plain\")?>(.*?)</script>", text, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in bodies]
    assert scripts == [f"'sha256-{digest}'" for digest in digests] and len(scripts) == 2


def test_flight_reports_have_a_limit(tmp_path: Path):
    th.Store(tmp_path).write([Batch(0, 0, {}, [Row(0, 0, "h", "t", "n", 1.0)])])
    for number in range(2):
        (tmp_path / "flights" / str(number)).mkdir(parents=True)
        text = json.dumps({"path": "p", "step": 1, "reason": "x" * 9_000_000, "suspects": []})
        (tmp_path / "flights" / str(number) / "flight.json").write_text(text)
    with pytest.raises(th.StoreError, match=r"the flight reports in .* have more than 16,777,216 bytes"):
        report(tmp_path, tmp_path / "report.html")


def test_numbers_in_names_are_sorted_by_their_size():
    names = ["b.10", "b.9", "b.010", "b", "a.1.c", "a.01.b", "a.0", "a", "²", "b.9.x", "1" * 5000, "2"]
    assert sorted(names, key=natural_key) == [
        "2", "1" * 5000, "a", "a.0", "a.01.b", "a.1.c", "b", "b.9", "b.9.x", "b.010", "b.10", "²",
    ]  # fmt: skip


def test_links_to_other_folders_are_not_followed(tmp_path: Path):
    needs("plotly")
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
def test_a_browser_draws_it(folder: Path, tmp_path: Path, browser: Any):
    report(folder, tmp_path / "report.html")
    page = browser.new_page(viewport={"width": 1240, "height": 900})
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto((tmp_path / "report.html").as_uri())
    page.wait_for_selector("body[data-drawn]")
    titles = page.eval_on_selector_all("h2", "all => all.map(one => one.textContent)")
    assert titles == ["Trips", "Gradient flow", "Updates relative to weights", "Changes by hooks",
                      "Magnitudes over time", "Hooks", "Findings", "Plan"]  # fmt: skip
    assert page.locator(".heatmaplayer image").count() >= 4
    # The red cells are a second image.
    assert page.locator(".heatmap").first.locator(".heatmaplayer image").count() == 2
    assert "step 30" in page.locator(".trips").inner_text()

    def labels() -> list[str]:
        return page.locator(".heatmap").first.locator(".yaxislayer-above text").all_text_contents()

    assert set(labels()[-2:]) == {"0.0.bias", "0.0.weight"}  # Plotly draws the first row last, at the top
    page.locator("select").first.select_option(label="updates · ratio")
    box = page.locator(".heatmap").first.locator(".plotbg, .bg, .draglayer .nsewdrag").last.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 5)
    page.wait_for_selector(".curve .scatterlayer path")
    assert "updates · ratio of 0.0.bias" in page.locator(".curve").first.text_content()
    assert said == []


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
        page = browser.new_page(viewport={"width": 1240, "height": 900})
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        own = (tmp_path / "report.html").as_uri()
        page.goto(own)
        page.wait_for_selector("body[data-drawn]")
        for chart in page.locator(".heatmap").all():
            box = chart.locator(".draglayer .nsewdrag").last.bounding_box()
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 5)  # shows the name of a target
            page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 5)
        page.wait_for_timeout(500)
        remote = [url for url in asked if url != own and not url.startswith(("data:", "blob:"))]
        assert (remote, said) == ([], [])
        grown = "img, iframe, object, link, base, a, svg image[href^=http], sub, meta[http-equiv=refresh]"
        assert page.eval_on_selector_all(grown, "all => all.map(one => one.outerHTML.slice(0, 200))") == []
        assert names[0] in page.inner_text("body")
        server.settimeout(0.1)
        with pytest.raises(TimeoutError):
            server.accept()
