"""Checks every transition between the states of hooks and registrations, in the tables and in real rigs."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch import nn

import tenterhook as th
from tenterhook.rig.runtime.status import HookEvent, HookStatus, RegistrationEvent, RegistrationStatus

#: by status, the statuses after DUE, NOT_DUE, MUTE, UNMUTE, RETIRE, STOP
HOOK = {
    "IDLE": "ACTIVE IDLE MUTED IDLE RETIRED IDLE",
    "ACTIVE": "ACTIVE IDLE MUTING ACTIVE RETIRING IDLE",
    "MUTED": "MUTED MUTED MUTED IDLE RETIRED MUTED",
    "MUTING": "MUTING MUTED MUTING ACTIVE RETIRING MUTED",
    "RETIRING": "RETIRING RETIRING RETIRING RETIRING RETIRING RETIRED",
    "RETIRED": "RETIRED RETIRED RETIRED RETIRED RETIRED RETIRED",
}
#: by status, the statuses after INSTALL, SUSPEND, REMOVE, MOVE, EXPECT
REGISTRATION = {
    "ABSENT": "INSTALLED ABSENT ABSENT ABSENT EXPECTED",
    "INSTALLED": "INSTALLED SUSPENDED ABSENT ABSENT PINNED",
    "SUSPENDED": "INSTALLED SUSPENDED ABSENT ABSENT EXPECTED",
    "EXPECTED": "PINNED EXPECTED ABSENT EXPECTED EXPECTED",
    "PINNED": "PINNED PINNED ABSENT EXPECTED PINNED",
}


@pytest.mark.parametrize("status", HookStatus)
def test_every_transition_of_a_hook(status: HookStatus) -> None:
    assert [status.after(event).name for event in HookEvent] == HOOK[status.name].split()


@pytest.mark.parametrize("status", RegistrationStatus)
def test_every_transition_of_a_registration(status: RegistrationStatus) -> None:
    assert [status.after(event).name for event in RegistrationEvent] == REGISTRATION[status.name].split()


def test_the_status_agrees_with_three_separate_flags() -> None:
    """Compare the status with three separate flags (fires, muted, removed) after random events."""
    draw = random.Random(0)
    for _ in range(2000):
        status, acts, muted, gone = HookStatus.IDLE, False, False, False
        for event in draw.choices(list(HookEvent), k=12):
            if event is HookEvent.DUE:
                acts = acts or not (muted or gone)
            elif event in (HookEvent.NOT_DUE, HookEvent.STOP):
                acts = acts and gone and event is HookEvent.NOT_DUE
            elif event is HookEvent.MUTE:
                muted = True
            elif event is HookEvent.UNMUTE:
                muted = False
            else:
                gone = True
            status = status.after(event)
            assert status.acts == acts, (event, status)
            assert status.is_muted == (muted and not gone) or gone, (event, status)
            assert (status in (HookStatus.RETIRING, HookStatus.RETIRED)) == gone


def test_a_retired_hook_stays_retired() -> None:
    for events in itertools.product(HookEvent, repeat=3):
        status = HookStatus.RETIRED
        for event in events:
            status = status.after(event)
        assert status is HookStatus.RETIRED and not status.acts


class Scaled(nn.Module):
    """Calls a given function in the middle of its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.between = lambda: None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        self.between()
        return self.second(x)


def statuses(rig: th.Rig) -> list[str]:
    return [hook.status.name for hook in rig._installer.hooks.values()]


@pytest.fixture
def model() -> Scaled:
    torch.manual_seed(0)
    return Scaled()


def plan() -> th.Plan:
    return th.Plan([
        th.Hook("scale", on=("first", "second"), at="output", do=th.scale(2.0)),
        th.Hook("seldom", on="first", at="output", do=th.stats(), when=th.When(every=2)),
    ])  # fmt: skip


def test_a_modifier_muted_inside_a_forward_fires_until_its_end(model: Scaled) -> None:
    rig = th.attach(model, plan())
    assert statuses(rig) == ["ACTIVE", "ACTIVE"]
    model.between = lambda: (rig.mute("scale"), rig.mute("seldom"))
    model(torch.ones(1, 2))
    assert rig.ledger["scale"]["second"].fired == 1
    model.between = lambda: None
    assert statuses(rig) == ["MUTING", "MUTED"]
    model(torch.ones(1, 2))
    assert statuses(rig) == ["MUTED", "MUTED"] and rig.ledger["scale"]["second"].fired == 1
    rig.unmute("scale")
    assert statuses(rig) == ["ACTIVE", "MUTED"]


def test_a_modifier_removed_inside_a_forward_fires_until_its_end(model: Scaled) -> None:
    rig = th.attach(model, plan())
    hook = rig._attached_hook("scale")
    model.between = lambda: rig.remove("scale")
    model(torch.ones(1, 2))
    assert hook.status is HookStatus.RETIRING and hook.sites[1].fired == 1
    model.between = lambda: None
    model(torch.ones(1, 2))
    assert hook.status is HookStatus.RETIRED and hook.sites[1].fired == 1 and not rig._installer.retired


def test_a_schedule_goes_back_and_forth_between_idle_and_active(model: Scaled) -> None:
    rig, seen = th.attach(model, plan()), []
    for _ in range(4):
        seen.append(statuses(rig)[1])
        model(torch.ones(1, 2)).sum().backward()
    assert seen == ["ACTIVE", "IDLE", "ACTIVE", "IDLE"]
    rig.detach()
    assert statuses(rig) == ["IDLE", "IDLE"]


def test_a_registration_keeps_its_place_before_those_of_others(model: Scaled) -> None:
    rig = th.attach(model, th.Hook("scale", on="first", at="output", do=th.scale(2.0)))
    (registration,) = rig._installer.registrations
    assert registration.status is RegistrationStatus.INSTALLED
    other = model.first.register_forward_hook(lambda module, args, output: None)
    order = list(model.first._forward_hooks)
    rig.mute("scale")
    assert registration.status is RegistrationStatus.SUSPENDED and list(model.first._forward_hooks) == order
    rig.unmute("scale")
    assert registration.status is RegistrationStatus.INSTALLED and list(model.first._forward_hooks) == order
    other.remove()
    rig.mute("scale")
    assert registration.status is RegistrationStatus.ABSENT and not model.first._forward_hooks
    rig.detach()


def test_a_registration_that_compiled_code_calls_stays(model: Scaled) -> None:
    model.compile(backend="eager")
    rig = th.attach(model, th.Hook("scale", on="first", at="output", do=th.scale(2.0)))
    (registration,) = rig._installer.registrations
    assert registration.status is RegistrationStatus.PINNED
    rig.mute("scale")
    assert registration.status is RegistrationStatus.PINNED and model.first._forward_hooks
    rig.detach()
    assert registration.status is RegistrationStatus.ABSENT and not model.first._forward_hooks
