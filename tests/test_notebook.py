"""Test what notebooks show: well-formed HTML without scripts, with the numbers that the objects hold."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch
from torch import nn

import tenterhook as th
from tenterhook.drawing import BAD, bar, heat_map, sparkline
from tenterhook.record.verdict import verdicts_json


def parsed(text: str) -> ElementTree.Element:
    """Parse HTML that is also XML. Scripts, handlers and addresses are not allowed in it."""
    assert not re.search(r"<script|\bon\w+=|href|src=|url\(", text)
    return ElementTree.fromstring(f"<div>{text.replace('<br>', '<br/>')}</div>")


def labels(root: ElementTree.Element) -> list[str]:
    return [one.get("aria-label", "") for one in root.iter("svg")]


def words(root: ElementTree.Element) -> str:
    return " ".join(root.itertext())


def test_a_curve_has_its_points_in_order_and_marks_what_is_not_finite() -> None:
    root = parsed(sparkline([1.0, 3.0, math.nan, 2.0], "a < b", width=100, height=20))
    lines = [one.get("points", "").split() for one in root.iter("polyline")]
    assert lines == [["2.0,18.0", "34.0,2.0"], ["98.0,10.0", "98.0,10.0"]]
    assert [one.get("fill") for one in root.iter("rect")] == [BAD]
    assert labels(root) == ["a < b"]


@pytest.mark.parametrize("values", [[], [1.0], [math.inf], [-1e308, 1e308], [0.0, 0.0], [5e-324, 1.0]])
def test_odd_curves_are_drawn_within_their_frame(values: list[float]) -> None:
    for line in parsed(sparkline(values, "odd")).iter("polyline"):
        for point in line.get("points", "").split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= 120 and 0 <= y <= 24


def test_a_bar_is_filled_in_part() -> None:
    widths = [[one.get("width") for one in parsed(bar(part, "b")).iter("rect")] for part in (0.25, 7.0, -1.0, math.nan)]
    assert widths == [["80", "20.0"], ["80", "80.0"], ["80", "0.0"], ["80", "0.0"]]


def test_a_heat_map_leaves_out_what_is_missing_and_marks_what_is_not_finite() -> None:
    root = parsed(heat_map([("a", [1.0, 10.0, None]), ("b", [math.inf, 0.0, 100.0])], "map"))
    colors = [one.get("fill") for one in root.iter("rect")]
    assert colors == ["#440154", "#21918c", BAD, "#440154", "#fde725"]
    assert [one.text for one in root.iter("text")] == ["a", "b"]


def trained(folder: Path) -> tuple[th.Run, th.Rig, nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hooks = [
        th.Hook("grads", on="**", at="grad_final", do=th.stats()),
        th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(0.5, over="hook"), when=th.When(every=2)),
    ]
    rig = th.attach(model, hooks, optimizer=optimizer, sinks=th.Store(folder / "run"))
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).square().sum().backward()
        optimizer.step()
    rig.flush()
    return th.open_run(folder / "run"), rig, model, optimizer


def test_a_run_shows_a_map_of_its_blocks_in_order(tmp_path: Path) -> None:
    run, rig, *_kept = trained(tmp_path)
    root = parsed(run._repr_html_())
    assert "steps 0 to 5" in words(root) and "largest norm of hook grads by block and step" in labels(root)
    map_ = next(one for one in root.iter("svg") if "by block" in one.get("aria-label", ""))
    assert [one.text for one in map_.iter("text")] == ["0", "1", "2"]
    shown = [float(one.text.partition(": ")[2]) for one in map_.iter("title") if one.text and ": " in one.text]
    for place, value in enumerate(shown):
        block, step = divmod(place, 6)
        largest = max(run.curve("grads", f"{block}.0.{name}", "norm").values[step] for name in ("weight", "bias"))
        assert math.isclose(value, largest, rel_tol=1e-3)
    assert len(shown) == 18
    rig.detach()


def test_a_run_with_a_verdict_and_a_loss_shows_both(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with th.flight(model, optimizer, tmp_path) as rig:
        for step in range(4):
            x = torch.full((1, 2), math.nan if step == 3 else 1.0)
            nn.functional.mse_loss(model(x), torch.zeros(1, 1)).backward()
            optimizer.step()
        verdict = rig.verdict()
        assert verdict is not None
        assert verdict.sentence in words(parsed(verdict._repr_html_()))
        assert verdict.remedy in words(parsed(verdict._repr_html_()))
    (report,) = rig.reports
    (Path(report.path) / "verdicts.json").write_text(verdicts_json([verdict]))
    root = parsed(th.open_run(report.path)._repr_html_())
    assert verdict.code in words(root)
    assert "loss by step" in labels(root)


def test_a_rig_and_its_ledger_show_bars_and_the_last_numbers_by_target(tmp_path: Path) -> None:
    _, rig, model, _kept = trained(tmp_path)
    root = parsed(rig._repr_html_())
    assert "norm of hook grads by target, 6 targets" in labels(root)
    assert "grads: 36 fired, 0 skipped" in labels(parsed(rig.ledger._repr_html_()))
    assert "0.0.weight" in words(parsed(rig.ledger["clip"]._repr_html_()))
    rig.detach()
    assert "<table>" in rig._repr_html_()
    hook = th.Hook("half", on="0.0.weight", at="grad", do=th.scale(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.zero_grad()
    with th.attach(model, hook, optimizer=optimizer) as rig:
        effect = th.effect(rig, model(torch.ones(1, 4)).sum())
        assert "0.0.weight: the hooks change 50 % of the last stage" in labels(parsed(effect._repr_html_()))
        assert "0.0.bias: the hooks change 0 % of the last stage" in labels(parsed(effect._repr_html_()))


def test_a_plan_lists_its_hooks() -> None:
    hooks = [
        th.Hook("a", on=("x", "y.*"), at="grad", do=th.stats(), when=th.When(every=10)),
        th.Hook("b", on="**", at="output", do=th.stats()),
    ]
    rows = [[cell.text for cell in row] for row in parsed(th.Plan(hooks)._repr_html_()).iter("tr")]
    assert rows[1:] == [
        ["a", "x, y.*", "grad", "stats()", "every=10"],
        ["b", "**", "output", "stats()", "every step"],
    ]
