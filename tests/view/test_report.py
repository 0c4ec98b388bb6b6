"""The report holds the data of the run, and a real browser draws it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tenterhook as th
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
    import base64

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
    from tenterhook.record import Batch, Row

    store = th.Store(tmp_path / "run")
    store.write([Batch(0, 0, {}, [Row(0, 0, "h", "</script><script>alert(1)</script>", "x", 1.0)])])
    report(tmp_path / "run", tmp_path / "report.html")
    assert "<script>alert" not in (tmp_path / "report.html").read_text()
    (run,) = data(tmp_path / "report.html")
    assert run["matrices"][0]["targets"] == ["</script><script>alert(1)</script>"]


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
