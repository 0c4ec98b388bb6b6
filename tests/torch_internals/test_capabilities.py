"""Check that a torch without one of its private attributes costs one capability, which is refused by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tenterhook.errors import RefusedError
from tenterhook.torch_internals import capabilities
from tenterhook.torch_internals.capabilities import Capability, find, look_for, needed_for, require
from tests.support.slices import EVERY

ROOT = Path(__file__).parents[2]
#: `scripts/versions` tries every accessor, in four tests that can run side by side
STEP, PARTS = (4, 4) if EVERY or os.environ.get("EVERY_ACCESSOR") else (20, 1)
#: by name of a capability: the capabilities that cannot exist without it
IMPLIED = {
    "BACKWARD": {"MODULE_GRADS", "GRAD_INPUT", "GATHERED"},
    "MODULE_GRADS": {"GRAD_INPUT"},
    "DOCTOR": {"SHARDED_EXAM", "COMPILED_EXAM"},
}


@pytest.fixture(autouse=True)
def disabled(monkeypatch: pytest.MonkeyPatch) -> dict[Capability, list[str]]:
    none: dict[Capability, list[str]] = {}
    monkeypatch.setattr(capabilities, "disabled", none)
    monkeypatch.setattr(capabilities, "_warned", set())
    return none


def report(start: int) -> list[dict[str, Any]]:
    """Return what every capability did without each attribute in turn. The first row lacks none."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.without", str(STEP), str(start)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if not line.startswith("[Gloo]")]  # torch 2.10 prints them
    return [json.loads(line) for line in lines]


@pytest.mark.programs
@pytest.mark.parametrize("start", range(PARTS))
def test_an_absent_attribute_disables_what_needs_it_by_name_and_nothing_else(start: int) -> None:
    first, *rows = report(start)
    assert "import" not in first, first
    assert not [name for name, one in first["done"].items() if "error" in one or one["warned"]]
    assert len(first["accessors"]) > 50
    wrong = []
    for row in rows:
        absent = row["absent"]
        if "import" in row:
            wrong.append(f"{absent}: import failed: {row['import']}")
            continue
        lost = set(first["accessors"][absent])
        lost |= {implied for one in lost for implied in IMPLIED.get(one, ())}
        for name, done in row["done"].items():
            if name not in lost:
                if done.get("result") != first["done"][name]["result"]:
                    wrong.append(f"{absent}: {name} should be as before: {done}")
                continue
            said = done.get("text", "") if done.get("error") == "RefusedError" else " ".join(done["warned"])
            named = any(Capability[one].value in said for one in lost)
            if not named or absent not in said:
                wrong.append(f"{absent}: {name} should be refused by name: {done}")
    assert not wrong, "\n".join(wrong)
    assert [row["absent"] for row in rows] == list(first["accessors"])[start::STEP]


def test_an_attribute_is_found_also_in_a_module_that_its_package_deleted() -> None:
    import torch.optim.optimizer as module

    found = find("torch.optim.optimizer._global_optimizer_pre_hooks", within=module)
    assert found is module._global_optimizer_pre_hooks


def test_an_absent_attribute_is_refused_with_its_name() -> None:
    assert find("torch._C._nothing", Capability.TAPS, otherwise=3) == 3
    look_for(object(), "nothing", Capability.TAPS)
    with pytest.raises(RefusedError, match=r"cannot support taps \(not found: torch\._C\._nothing, object\.nothing\)"):
        require(Capability.BACKWARD, Capability.TAPS)
    require(Capability.BACKWARD)


def test_a_guarded_function_refuses_or_warns_once() -> None:
    @needed_for(Capability.RANKS)
    def read() -> int:
        return object().number  # type: ignore[attr-defined, no-any-return]

    @needed_for(Capability.COMPILED_EXAM, otherwise=0)
    def count() -> int:
        return object().number  # type: ignore[attr-defined, no-any-return]

    with pytest.raises(RefusedError, match="training on several ranks"):
        read()
    with pytest.warns(RuntimeWarning, match="the doctor's checks of compiled code"):
        assert count() == 0
    assert count() == 0  # pytest turns a second warning into an error
