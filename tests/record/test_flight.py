"""The flight recorder writes only when something goes wrong: then it writes the last steps and the suspects."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

import tenterhook as th
from tests.support.record.hunted import CASES, HEALTHY, WHEN, Case, run
from tests.support.warm_python import warm_python


def flown(model: nn.Module, path: Path) -> tuple[th.Rig, torch.optim.Optimizer, th.Flight]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rig = th.flight(model, optimizer, path, steps=8)
    return rig, optimizer, rig._recorder.flights[0]


@pytest.mark.slice(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_verdict_names_the_producer(case: Case, tmp_path: Path):
    torch.manual_seed(0)
    model, do = case.make()
    rig, optimizer, flight = flown(model, tmp_path)
    run(model, optimizer, do, WHEN + 1)
    verdict = rig.verdict()
    rig.detach()
    assert verdict is not None and (verdict.code, verdict.step, verdict.target) == ("TH801", WHEN, case.producer)
    (report,) = flight.reports
    assert (report.step, report.verdict, report.suspects) == (WHEN, verdict, ())
    written = json.loads((tmp_path / f"step-{WHEN:08}" / "flight.json").read_text())
    assert written["verdict"]["target"] == case.producer
    assert verdict.sentence in str(report)


def detailed(model: nn.Module) -> list[th.Hook]:
    """Return hooks that record everything in every step."""
    everything = (".", "**")
    points = {"outputs": "output", "grad_outputs": "grad_output", "grad_inputs": "grad_input"}
    hooks = [th.Hook(id, on=everything, at=at, do=th.stats()) for id, at in points.items()]  # type: ignore[arg-type]
    hooks += [th.Hook(at, on="**", at=at, do=th.stats()) for at in ("grad_final", "update")]  # type: ignore[arg-type]
    return [*hooks, th.Hook("nonfinite", on="**", at="grad_final", do=th.watch_nonfinite())]


@pytest.mark.slice(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_without_a_verdict_the_producer_is_the_first_suspect(case: Case, tmp_path: Path):
    torch.manual_seed(0)
    model, do = case.make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    flight = th.Flight(tmp_path, steps=8)
    rig = th.attach(model, detailed(model), optimizer=optimizer, sinks=flight)
    run(model, optimizer, do, WHEN + 1)
    rig.detach()
    (report,) = flight.reports
    assert report.step == WHEN
    assert (report.suspects[0].kind, report.suspects[0].target) == ("nonfinite", case.producer)
    written = json.loads((tmp_path / f"step-{WHEN:08}" / "flight.json").read_text())
    assert written["suspects"][0]["target"] == case.producer
    curve = th.open_run(report.path).curve("grad_final", "0.weight", "norm")
    assert curve.steps == list(range(WHEN + 1))


@pytest.mark.slice(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_find_nonfinite_names_the_producer(case: Case):
    torch.manual_seed(0)
    model, do = case.make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with pytest.raises(th.NonFiniteError) as caught, th.find_nonfinite(model):
        run(model, optimizer, do, WHEN + 1)
    assert caught.value.target == case.producer


@pytest.mark.slice(3)
@pytest.mark.filterwarnings("ignore:tenterhook muted:RuntimeWarning")  # one of the models changes an output in place
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_does_not_trip(name: str, tmp_path: Path):
    torch.manual_seed(0)
    model = HEALTHY[name]()
    rig, optimizer, flight = flown(model, tmp_path / "flights")
    run(model, optimizer, None, 40)
    rig.detach()
    assert flight.reports == []
    assert not (tmp_path / "flights").exists()


def test_an_error_in_the_block_is_a_reason(tmp_path: Path):
    model = nn.Linear(2, 1)
    rig, optimizer, flight = flown(model, tmp_path)
    with pytest.raises(ZeroDivisionError), rig:
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        1 / 0
    assert [r.reason for r in flight.reports] == ["ZeroDivisionError: division by zero"]


PROGRAM = """
import os, signal, sys, torch
import tenterhook as th
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{before}
rig = th.flight(model, optimizer, sys.argv[1])
for step in range(10):
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
{end}
"""


@pytest.mark.parametrize(
    ("before", "end", "code", "reason"),
    [
        ("", "os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, "the process received SIGTERM"),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))", "os.kill(os.getpid(), signal.SIGTERM)", 7,
         "the process received SIGTERM"),
        ("", "raise KeyError('lost')", 1, "the program ended with KeyError: 'lost'"),
        ("", "", 0, None),
    ],
)  # fmt: skip
def test_how_a_program_may_end(tmp_path: Path, before: str, end: str, code: int, reason: str | None):
    program = tmp_path / "train.py"
    program.write_text(PROGRAM.format(before=before, end=end))
    ended = subprocess.run([warm_python(), program, tmp_path / "flights"], capture_output=True, text=True)
    assert ended.returncode == code, ended.stderr
    found = list(tmp_path.glob("flights/*/flight.json"))
    assert len(found) == (reason is not None)
    if reason is not None:
        assert json.loads(found[0].read_text())["reason"] == reason
        assert th.open_run(found[0].parent).curve("training", "weight", "norm").steps == list(range(10))


def test_the_signal_handler_is_restored(tmp_path: Path):
    mine = lambda number, frame: None
    before = signal.signal(signal.SIGTERM, mine)
    try:
        rig, _optimizer, _flight = flown(nn.Linear(2, 1), tmp_path)
        assert signal.getsignal(signal.SIGTERM) is not mine
        rig.detach()
        assert signal.getsignal(signal.SIGTERM) is mine
        rig, _optimizer, _flight = flown(nn.Linear(2, 1), tmp_path)
        del rig, _optimizer, _flight
        gc.collect()
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_trip_makes_other_hooks_due(tmp_path: Path):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    plan = [
        th.Hook("watch", on="weight", at="grad_final", do=th.watch_nonfinite()),
        th.Hook("heavy", on="weight", at="grad_final", do=th.histogram(), when=th.When(after_trip=2)),
    ]
    flight = th.Flight(tmp_path)
    rig = th.attach(model, plan, optimizer=optimizer, sinks=flight)
    for step in range(8):
        optimizer.zero_grad()
        model(torch.full((1, 2), torch.inf if step == 3 else 1.0)).sum().backward()
        optimizer.step()
    rig.detach()
    assert rig.ledger["heavy"].fired == 2
    assert [r.reason for r in flight.reports] == ["watch_nonfinite 'watch' tripped at 'weight'"]


def test_it_keeps_the_given_number_of_steps(tmp_path: Path):
    model = nn.Linear(2, 1)
    rig, optimizer, flight = flown(model, tmp_path)
    for _ in range(50):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert len(flight._batches) == 8
    assert os.listdir(tmp_path) == []
    rig.detach()


def test_an_unreadable_parameter_does_not_stop_the_training(tmp_path: Path):
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.unused = nn.Linear(2, 1), nn.Linear(2, 2, device="meta")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(x)

    model = Odd()
    optimizer = torch.optim.SGD(model.fc.parameters(), lr=0.1)
    flight = th.Flight(tmp_path)
    watch = th.Hook("w", on="fc.weight", at="grad_final", do=th.watch_nonfinite())
    with (
        pytest.warns(UserWarning, match="could not read the model"),
        th.attach(model, [watch], optimizer=optimizer, sinks=flight),
    ):
        model(torch.full((1, 2), torch.inf)).sum().backward()
        optimizer.step()
    assert [s.target for s in flight.reports[0].suspects] == []


def test_it_can_be_used_again_and_keeps_its_reports(tmp_path: Path):
    flight = th.Flight(tmp_path, steps=8)
    for _ in range(2):
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        watch = th.Hook("w", on="weight", at="grad_final", do=th.watch_nonfinite())
        with th.attach(model, [watch], optimizer=optimizer, sinks=flight):
            for step in range(4):
                optimizer.zero_grad()
                model(torch.full((1, 2), torch.inf if step == 3 else 1.0)).sum().backward()
                optimizer.step()
    assert [Path(r.path).name for r in flight.reports] == ["step-00000003", "step-00000003-2"]


def test_two_recorders_restore_the_handler_in_any_order(tmp_path: Path):
    before = signal.getsignal(signal.SIGTERM)
    rigs = [flown(nn.Linear(2, 1), tmp_path / str(i))[0] for i in range(2)]
    for rig in rigs:
        rig.detach()
    assert signal.getsignal(signal.SIGTERM) == before


def test_flush_waits_for_the_report_of_a_trip(tmp_path: Path):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with th.flight(model, optimizer, tmp_path) as rig:
        (model(torch.ones(1, 2)) * torch.nan).sum().backward()
        optimizer.step()
        assert rig.flush()
        assert [report.step for report in rig.reports] == [0]
