"""Test that hostile data is refused at little cost and does not run code. `scripts/hostile` runs all cases."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.keep.entry_points import CARRIERS, FORMS, READERS, Victim
from tests.support.keep.forger import Forger, honest
from tests.support.keep.guard import SECONDS
from tests.support.keep.hostile import artefacts
from tests.support.keep.hostile_plans import hook, plan, toml

pytestmark = pytest.mark.programs


ROOT = Path(__file__).parents[2]


def in_a_process(*arguments: str) -> str:
    ran = subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


@pytest.fixture(scope="module")
def verdicts() -> list[dict[str, Any]]:
    found = [json.loads(line) for line in in_a_process("tests.support.keep.hostile", "--slice").splitlines()]
    return [verdict for verdict in found if not verdict["undelivered"]]


def test_every_artefact_of_the_slice_is_refused_as_it_should_be(verdicts: list[dict[str, Any]]):
    wrong = []
    for v in verdicts:
        # Other tests run at the same time, so the limit is higher here. `scripts/hostile` uses 50 ms.
        faults = [fault for fault in v["faults"] if not fault.endswith(" ms") or v["seconds"] > 4 * SECONDS]
        wrong += [f"{v['artefact']} by {v['carrier']} to {v['reader']}: {faults}"] if faults else []
    assert not wrong, "\n".join(wrong)


def test_the_slice_comes_to_every_door(verdicts: list[dict[str, Any]]):
    assert len(verdicts) > 250
    assert {v["reader"] for v in verdicts} == set(READERS)
    assert {v["carrier"] for v in verdicts} == set(CARRIERS)


def test_there_are_more_than_500_artefacts_and_all_are_different():
    found = artefacts()
    assert len(found) > 1500
    assert [name for name, n in Counter(a.name for a in found).items() if n > 1] == []
    assert {form for a in found for form in a.forms} == set(FORMS)


def carried(carrier: str, thing: Any, place: Path) -> Any:
    way = CARRIERS[carrier](thing, place)
    try:
        call = next(way)
        while True:
            call = way.send(call())
    except StopIteration as arrived:
        return arrived.value


HONEST = {"json": json.dumps(plan(hook())).encode(), "toml": toml(plan(hook())).encode()}


@pytest.mark.parametrize(("form", "carrier"), [(f, c) for f, carriers in FORMS.items() for c in carriers])
def test_what_is_honest_comes_through_every_door(form: str, carrier: str, tmp_path: Path):
    thing = HONEST.get(form, (lambda metadata: None) if form == "metadata" else Forger().seal())
    arrived = carried(carrier, thing, tmp_path)
    for reader in FORMS[form][carrier]:
        READERS[reader](Victim(), arrived)


def test_the_forger_writes_what_the_rig_would_write():
    forged = Forger().seal()
    assert list(forged) == list(honest())
    assert all(torch.equal(tensor, honest()[key]) for key, tensor in forged.items())


def test_the_guard_sees_every_misdeed():
    found = json.loads(in_a_process("tests.support.keep.misdeeds"))
    assert len(found) > 30
    for must, said in found:
        assert any(must in one for one in said) if must else said == [], (must, said)
