"""A verdict reaches the user: through the rig, the run folder, the report, the command line and alerts."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import tenterhook as th
from tenterhook.cli import main
from tenterhook.verdict import watch_training
from tenterhook.view import report
from tenterhook.view.data.run_data import RunData
from tests.support.view.report_data import data_of

SENTENCE = (
    "Step 3: the program passed a NaN to the model, in the argument 'input'. Everything after it is a consequence."
)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, *, bad: int | None = 3, steps: int = 5) -> None:
    for step in range(steps):
        x = torch.full((2, 4), torch.nan) if step == bad else torch.ones(2, 4)
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()


def small() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def test_a_rig_that_does_not_watch_the_training_says_so():
    model, _ = small()
    rig = th.watch(model)
    with pytest.raises(th.RefusedError, match=r"no verdict(.|\n)*use th.flight\(model, optimizer, folder\)"):
        rig.verdict()
    assert rig.verdicts == []
    rig.detach()


def test_a_healthy_training_has_no_verdict(tmp_path: Path):
    model, optimizer = small()
    with th.flight(model, optimizer, tmp_path) as rig:
        train(model, optimizer, bad=None)
        assert rig.verdict() is None


def test_the_run_folder_has_the_verdict_while_the_training_runs(tmp_path: Path):
    model, optimizer = small()
    hook = th.Hook("g", on="**", at="grad_final", do=th.stats())
    rig = th.attach(model, hook, optimizer=optimizer, sinks=th.Store(tmp_path))
    watch_training(rig, [optimizer])
    train(model, optimizer, bad=None)
    assert not (tmp_path / "verdicts.json").exists()
    train(model, optimizer)
    rig.flush()
    until = time.monotonic() + 30
    while not (tmp_path / "verdicts.json").exists() and time.monotonic() < until:
        time.sleep(0.01)
    summary = RunData("run", tmp_path).summary()
    assert (summary.live, summary.tone, summary.sentence) == (True, "sick", SENTENCE.replace("Step 3", "Step 8"))
    rig.detach()
    assert not RunData("run", tmp_path).summary().live


def test_the_run_folder_and_the_report_have_the_verdict(tmp_path: Path):
    model, optimizer = small()
    rig = th.attach(
        model, th.Hook("g", on="**", at="grad_final", do=th.stats()), optimizer=optimizer, sinks=th.Store(tmp_path)
    )
    watch_training(rig, [optimizer])
    train(model, optimizer)
    rig.detach()
    assert rig.verdict() == th.open_run(tmp_path).verdicts[0]
    assert rig.verdict().sentence == SENTENCE  # type: ignore[union-attr]
    report(tmp_path, tmp_path / "report.html")
    (run,) = data_of(tmp_path / "report.html")["runs"]
    assert (run["tone"], run["sentence"]) == ("sick", SENTENCE)


def test_an_alert_is_sent_once_while_the_training_runs(tmp_path: Path):
    model, optimizer = small()
    sent: list[tuple[str, str]] = []
    arrived = threading.Event()

    def alert(verdict: th.Verdict) -> None:
        sent.append((verdict.sentence, threading.current_thread().name))
        arrived.set()

    with th.flight(model, optimizer, tmp_path, alert=alert):
        train(model, optimizer)
        assert arrived.wait(10)
    assert sent == [(SENTENCE, "tenterhook: alert")]


def test_an_alert_that_fails_does_not_stop_the_training(tmp_path: Path):
    model, optimizer = small()

    def alert(verdict: th.Verdict) -> None:
        raise OSError("no network")

    with (
        pytest.warns(RuntimeWarning, match=r"sending an alert failed: OSError\('no network'\)"),
        th.flight(model, optimizer, tmp_path, alert=alert),
    ):
        train(model, optimizer)


SCRIPT = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(5):
    optimizer.zero_grad()
    model(torch.full((2, 4), float("nan")) if step == 3 else torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""


def test_the_command_prints_the_sentence_writes_json_and_sends_alerts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)
    Path("mail.py").write_text(
        "from pathlib import Path\ndef send(verdict):\n    Path('sent.txt').write_text(verdict.sentence)\n"
    )
    assert main(["run", "--out", "out", "--json", "summary.json", "--alert", "mail:send", "train.py"]) == 0
    assert f"  TH802 error: {SENTENCE}" in capfd.readouterr().err
    assert Path("sent.txt").read_text() == SENTENCE
    summary = json.loads(Path("summary.json").read_text())
    assert summary["verdict"]["sentence"] == SENTENCE
    (model,) = summary["models"]
    assert (model["name"], model["steps"], model["verdicts"][0]["code"]) == ("Linear", 5, "TH802")


def test_an_alert_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)
    Path("mail.py").write_text("def send(verdict): ...\n")
    assert main(["run", "--alert", "mail:sent", "train.py"]) == 2
    assert "--alert mail:sent: mail has no function 'sent'" in (text := capfd.readouterr().err)
    assert "write mail:send" in text
