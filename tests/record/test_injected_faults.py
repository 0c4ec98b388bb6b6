"""No error inside the recording changes or stops training. The cases are a slice of the injector's."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

import tenterhook as th
from tenterhook.record import Recorder
from tests.support.record.injected_faults import cases, run, train

pytestmark = pytest.mark.programs


def test_a_fault_in_recording_leaves_training_unchanged():
    bare = train(None)
    verdicts = [run(case, bare) for case in cases()[::151]]
    assert [f"{one.case}: {one.fault}" for one in verdicts if one.called and one.fault] == []
    assert sum(one.called for one in verdicts) > 4


@pytest.mark.parametrize("error", ["Exception", "MemoryError", "OSError", "SystemExit"])
def test_the_end_of_a_step_survives_every_kind_of_error(error: str):
    bare = train(None)
    names = ("Recorder.flush raises", "Batch.__init__ raises", "Flight.trip raises", "StepTable.__init__ raises")
    chosen = [case for case in cases() if any(name in str(case) for name in names) and case.error == error]
    assert len(chosen) == 2 * len(names)
    assert [(str(one.case), one.called, one.fault) for one in (run(case, bare) for case in chosen)] == [
        (str(case), True, None) for case in chosen
    ]


def attached(log: list[int]) -> tuple[nn.Module, torch.optim.Optimizer, th.Rig]:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = th.Hook("s", on="**", at="grad_final", do=th.stats())
    rig = th.attach(model, hook, optimizer=optimizer, sinks=lambda values, step: log.append(step))
    return model, optimizer, rig


def test_an_internal_error_is_reported_once_and_counted(monkeypatch: pytest.MonkeyPatch):
    def broken(recorder: Recorder, step: int) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(Recorder, "flush", broken)
    model, optimizer, rig = attached([])
    with pytest.warns(RuntimeWarning) as told:
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert [str(w.message) for w in told] == [
        "tenterhook: recording the numbers of a step failed, and training goes on: ValueError('broken')"
    ]
    assert [f.evidence for f in th.check(rig)] == ["recording the numbers of a step failed 3 times"]
    assert str(rig).startswith("rig: 3 steps; recording the numbers of a step failed 3 times\n")
    monkeypatch.undo()
    rig.detach()


def test_an_observer_whose_numbers_cannot_be_computed_is_muted(monkeypatch: pytest.MonkeyPatch):
    from tenterhook.rig.runtime.hook_state import Partials

    model, optimizer, rig = attached([])
    monkeypatch.setattr(Partials, "take", lambda partials: 1 / 0)
    with pytest.warns(RuntimeWarning, match=r"computing the numbers of hook 's' failed"):
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert rig.ledger["s"].state == "muted"
    rig.detach()


def test_an_observer_that_merges_across_ranks_is_not_muted(monkeypatch: pytest.MonkeyPatch):
    from tenterhook.rig.runtime.hook_state import Partials

    model, optimizer, rig = attached([])
    (hook,) = rig._installer.hooks.values()
    hook.resolved = replace(hook.resolved, merges=True)  # muting it on this rank alone would make the others wait
    monkeypatch.setattr(Partials, "take", lambda partials: 1 / 0)
    with pytest.warns(RuntimeWarning, match="computing the numbers of hook 's' failed, and training goes on"):
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert rig.ledger["s"].state == "installed"
    assert [f.evidence for f in th.check(rig)] == ["computing the numbers of hook 's' failed 2 times"]
    rig.detach()


@pytest.mark.parametrize("how", ["function", "method", "object"])
def test_a_signal_handler_that_exits_is_not_contained(monkeypatch: pytest.MonkeyPatch, how: str):
    class Exit:
        def __call__(self, number: int, frame: object) -> None:
            sys.exit(7)

        def method(self, number: int, frame: object) -> None:
            sys.exit(7)

    def function(number: int, frame: object) -> None:
        sys.exit(7)

    def interrupted(recorder: Recorder, step: int) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        for _ in range(1000):
            pass

    model, optimizer, rig = attached([])
    monkeypatch.setattr(Recorder, "flush", interrupted)
    before = signal.signal(signal.SIGUSR1, {"function": function, "method": Exit().method, "object": Exit()}[how])
    try:
        model(torch.ones(1, 2)).sum().backward()
        with pytest.raises(SystemExit):
            optimizer.step()
    finally:
        signal.signal(signal.SIGUSR1, before)
    monkeypatch.undo()
    rig.detach()


def test_an_interrupt_by_the_user_is_not_contained(monkeypatch: pytest.MonkeyPatch):
    def interrupted(recorder: Recorder, step: int) -> None:
        raise KeyboardInterrupt

    model, optimizer, rig = attached([])
    monkeypatch.setattr(Recorder, "flush", interrupted)
    model(torch.ones(1, 2)).sum().backward()
    with pytest.raises(KeyboardInterrupt):
        optimizer.step()
    monkeypatch.undo()
    rig.detach()
