"""Test that states and plans of format 1 can always be read.

A golden file must never be changed or removed, since users have checkpoints like it. `scripts/golden` adds new files.
"""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

import tenterhook as th
from tenterhook.rig.runtime.attached_hook import AttachedHook
from tenterhook.rig.saved.format import SizeLimits
from tenterhook.rig.saved.format import read as read_state
from tenterhook.rig.saved.writer import surroundings
from tenterhook.rig.step.end_of_step import StepSource
from tests.keep.golden.reader import reader, source
from tests.keep.golden.recipes import ACTIONS, PLANS, RECIPES, Job

FOLDER = Path(__file__).with_name("golden")
ROOM = SizeLimits(64, torch.nn.Module())
SHA256 = {
    "1/packed.safetensors": "31999b39001e52b1788bd79443e69b821485db0ae4f525f62487f18531865621",
    "1/packed.expected.json": "407615edb5e4706b72636c89b42ad8002d3f8285cd07ebd553762428bc85cf66",
    "1/free.safetensors": "1b3017a458c5f55c8438fa6d20babad3c4536d46edeb41d522fc87516f2fdc0e",
    "1/free.expected.json": "f09d804486092a3c93ed42d2a98ce44b5d134613d8e766697a69f5c319fc32c6",
    "1/drawn.safetensors": "3eeb158f287be2cce99eb8a14b226a85a8e2363f0c05dc353de751e2a00d0d62",
    "1/drawn.expected.json": "2d87475702bb7a88e63646c8deab7d4458ada105509d422bb84d07e48f2a0093",
    "1/taps.safetensors": "7e343006369078786ffaa9e8994db531605f3e4593312a7d4bfced2923018283",
    "1/taps.expected.json": "6b0d4731770f28acb42af25e3f40299e5598c5940e319675065601f9d6baaa41",
    "1/between.safetensors": "f3a461b8c44dc8e57a8aecdb6dd295f6c9aab8f470b67fff54892a52d6f10547",
    "1/between.expected.json": "ca0ee2c565f54e58094044ff285a3f7148ce3899c683f4a24178597b588bbc0f",
    "1/troubles.safetensors": "23aff03604daf772b844ce055195cb9562f93b26ef5c23e0978b1a17d46f4ba2",
    "1/troubles.expected.json": "740d199194f0e7287e9f9c305cd98d5598da3a0962fb801941370fadfdf2c3d2",
    "1/plan.json": "ce9386cead53a48657b28bd50c2a3745a69b9c1fd14aad6a32247500367fbb6d",
    "1/plan.json.expected.json": "2d38c48960673b0da9e1e1804feec2c6b573c00f1b556e8b07c085cd478d12c6",
    "1/plan.toml": "fd791e9b83698d59e12c42873762b2f0ce7b7a835ff37b9c6b8748ab989447a5",
    "1/plan.toml.expected.json": "52c5e9033d25cf21752ed2adf1d9ec8d39c2e82247b18d5a1609d4e7da33d918",
}
STATES = sorted(name.removesuffix(".safetensors") for name in SHA256 if name.endswith(".safetensors"))
each_state = pytest.mark.parametrize("state", STATES)


def golden(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


def expected(name: str) -> dict[str, Any]:
    return json.loads(golden(f"{name}.expected.json"))


def job_of(state: str) -> Job:
    return Job(RECIPES[Path(state).name])


def restored(state: str, job: Job) -> Job:
    """Restore the golden state on a job's model; it is strict, so any difference is an error."""
    saved = load(golden(f"{state}.safetensors"))
    job.rig = th.restore(job.model, saved, optimizer=job.optimizer, actions=ACTIONS)
    return job


def test_golden_files_are_never_changed() -> None:
    found = [path for path in FOLDER.glob("[0-9]*/*") if path.is_file()]
    digests = {str(path.relative_to(FOLDER)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}
    assert digests == SHA256, "a golden file may never be changed, renamed or removed; scripts/golden adds new ones"
    assert max(path.stat().st_size for path in found) <= 20_000


def test_every_recipe_has_a_golden_file() -> None:
    assert {Path(state).name for state in STATES} == RECIPES.keys()
    assert {name: golden(f"1/{name}").decode() for name in PLANS} == PLANS


# -- read by another program -------------------------------------------------------------------------------------------


@each_state
def test_the_page_is_enough_to_read_a_state(state: str) -> None:
    read, _ = reader()
    assert read(golden(f"{state}.safetensors")) == expected(state)


def test_the_reader_of_the_page_needs_nothing_but_the_standard_library() -> None:
    code = f"{source()}\nimport sys\nprint(json.dumps([read(open(p, 'rb').read()) for p in sys.argv[1:]]))"
    paths = [str(FOLDER / f"{state}.safetensors") for state in STATES]
    # The process is isolated and has no site-packages, so it can import only the standard library.
    run = subprocess.run([sys.executable, "-I", "-S", "-c", code, *paths], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == [expected(state) for state in STATES]


@each_state
def test_both_readers_refuse_every_damage(state: str) -> None:
    whole = golden(f"{state}.safetensors")
    flips = [(bit // 8, 1 << bit % 8) for bit in range(0, 8 * len(whole), 797)]
    damaged = [whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :] for at, mask in flips]
    damaged += [whole[:cut] for cut in range(0, len(whole), 499)]
    read, refused = reader()
    for one in damaged:
        with pytest.raises(refused):
            read(one)
        with pytest.raises((th.StateError, SafetensorError)):
            read_state(load(one), ROOM)


# -- read by tenterhook ------------------------------------------------------------------------------------------------


@each_state
def test_a_state_is_restored_as_it_was(state: str) -> None:
    job = restored(state, job_of(state))
    assert told(job.rig) == expected(state)
    before, after = load(golden(f"{state}.safetensors")), job.rig.state_dict()
    assert before.keys() == after.keys()
    assert [key for key in before if key != "tenterhook/rank0/header" and not same(before[key], after[key])] == []


@each_state
def test_a_state_goes_into_the_plan_of_the_program(state: str) -> None:
    job = job_of(state).attach()
    report = job.rig.load_state_dict(load(golden(f"{state}.safetensors")))
    assert report.differences == []
    # Another machine or a later Python causes notes, but no differences.
    assert all("may differ" in note or "saved under Python" in note for note in report.notes), report.notes
    assert told(job.rig) == expected(state)


#: written when clip_zscore reduced a norm below its limit by a millionth, so that a run today has other numbers
MENDED = {"1/packed", "1/taps"}


@pytest.mark.parametrize("state", [state for state in STATES if state not in MENDED])
def test_a_state_goes_on_as_if_it_had_never_stopped(state: str) -> None:
    straight = job_of(state).attach().run()
    saved = load(golden(f"{state}.safetensors"))
    here = straight.rig.state_dict()
    exact = all(same(saved[key], here[key]) for key in saved if key != "tenterhook/rank0/header")
    # Another machine may produce other last bits. The machine that wrote the file must not.
    assert exact or {name: getattr(read_state(saved, ROOM).header, name) for name in surroundings()} != surroundings()
    resumed = job_of(state)
    with torch.no_grad():
        for mine, theirs in zip(resumed.model.parameters(), straight.model.parameters(), strict=True):
            mine.copy_(theirs)
            mine.grad = None if theirs.grad is None else theirs.grad.clone()
    restored(state, resumed)
    straight.step()
    resumed.step()
    assert resumed.rig.step_count == expected(state)["clock"]["step"] + 1
    assert close(told(resumed.rig), told(straight.rig), exact=exact)
    for mine, theirs in zip(resumed.model.parameters(), straight.model.parameters(), strict=True):
        assert torch.equal(mine, theirs) if exact else torch.allclose(mine, theirs)


def test_the_states_hold_something_of_every_kind() -> None:
    kinds = {kind_of_key(key) for state in STATES for key in load(golden(f"{state}.safetensors"))}
    assert kinds == {
        "header", "targets", "ledger", "state", "pending", "partial", "fired", "tensor", "free", "index",
        "pending_free", "pending_index", "generator",
    }  # fmt: skip
    rows = [row for state in STATES for hook in expected(state)["hooks"].values() for row in hook["targets"].values()]
    for word in ("changed", "failed", "rebound", "muted", "skipped"):
        assert any(row[word] for row in rows), word
    assert any(hook["muted"] for state in STATES for hook in expected(state)["hooks"].values())
    assert any(expected(state)["clock"]["tripped"] >= 0 for state in STATES)


def test_a_later_format_is_refused_by_its_number() -> None:
    saved = load(golden("1/packed.safetensors"))
    sealed = json.loads(bytes(saved["tenterhook/rank0/header"].tolist())) | {"tenterhook": 2, "new": "field"}
    text = json.dumps(sealed, sort_keys=True, separators=(",", ":"))
    saved["tenterhook/rank0/header"] = torch.tensor(list(text.encode()), dtype=torch.uint8)
    job = job_of("1/packed")
    with pytest.raises(th.StateError, match="the state has format 2, but this version of tenterhook reads format 1"):
        th.restore(job.model, saved, optimizer=job.optimizer)


# -- plans -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_read_as_it_was(name: str) -> None:
    plan = th.Plan.load(FOLDER / "1" / name)
    said = expected(f"1/{name}")
    assert (plan.to_json(), plan.digest) == (said["canonical"], said["digest"])
    assert th.Plan.from_json(said["canonical"]) == plan
    assert hashlib.sha256(said["canonical"].encode()).hexdigest() == said["digest"]


def test_a_plan_of_a_later_format_is_refused_by_its_number() -> None:
    with pytest.raises(th.PlanFileError, match="the plan has format 2, but this version of tenterhook reads format 1"):
        th.Plan.from_json('{"tenterhook": 2, "hooks": [], "new": "field"}')


# -- the state of a rig, in the form that the reader of the page returns -----------------------------------------------


def told(rig: th.Rig) -> dict[str, Any]:
    clock, passes, gradients = rig._clock, rig._clock.passes, rig._installer.environment.gradients
    return {
        "plan": json.loads(rig.plan.to_json()),
        "digest": rig.plan.digest,
        "clock": {"step": rig.step_count, "tripped": clock.tripped, "accumulated": gradients.accumulated,
                  "forwards": passes.counts, "last": [passes.now.step, passes.now.index, passes.now.training],
                  "optimizer": rig._clock_name, "manual": rig._finalizer.source is StepSource.PROGRAM},
        "hooks": {id: _hook(rig._attached_hook(id)) for id in rig.ledger},
        "tensors": {name: _value(tensor) for name, tensor in rig._tensors.items()},
    }  # fmt: skip


def _hook(live: AttachedHook) -> dict[str, Any]:
    names, state, partials = [site.name for site in live.sites], live.state, live.partials
    measured = partials.stores if partials is not None and any(partials.fired) else {}
    fired = partials.fired if partials is not None else bytes(len(names))
    said: dict[str, Any] = {
        "action": live.definition.name, "version": live.definition.version, "due": live.due_steps,
        "counted": live.counted, "muted": live.status.is_muted,
        "targets": {site.name: _site(site) for site in live.sites},
        "state": {name: dict(zip(names, _numbers(tensor))) for name, tensor in state.packed.items()},
        "pending": {name: dict(zip(names, _numbers(tensor))) for name, tensor in state.pending.items()},
        "partial": {name: dict(zip(names, map(_numbers, tensor))) for name, tensor in measured.items()},
        "fired": [name for name, one in zip(names, fired) if one],
        "free": {}, "pending_free": {},
        "generator": {f"{device}/{seed}": hashlib.blake2b(bytes(g.get_state().tolist()), digest_size=16).hexdigest()
                      for (device, seed), g in state.generators.items()},
    }  # fmt: skip
    for kind, table in (("free", state.free), ("pending_free", state.pending_free)):
        for (slot, name), tensor in table.items():
            said[kind].setdefault(names[slot], {})[name] = _value(tensor)
    return said


def _site(site: Any) -> dict[str, Any]:
    words = ("due", "fired", "changed", "failed", "rebound", "first", "last")
    parameter = site.target.parameter() if site.target.kind == "parameter" else None
    kind = None if parameter is None else f"{str(parameter.dtype).removeprefix('torch.')}{list(parameter.shape)}"
    kind = type(site.target.owner()).__name__ if site.target.kind == "module" else kind
    muted = site.dormant if site.dormant and site.dormant.startswith("muted") else None
    return {word: getattr(site, word) for word in words} | {
        "kind": kind, "muted": muted, "skipped": site.skipped or {}}  # fmt: skip


def _value(tensor: Tensor) -> dict[str, Any]:
    dtype = str(tensor.dtype).removeprefix("torch.")
    numbers = bytes(tensor.view(torch.uint8).flatten().tolist()).hex() if "float8" in dtype else _numbers(tensor)
    return {"dtype": dtype, "shape": list(tensor.shape), "numbers": numbers}


def _numbers(tensor: Tensor) -> list[Any]:
    numbers = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return [one if isinstance(one, list) or math.isfinite(one) else str(one)
            for one in numbers.reshape(-1, *numbers.shape[tensor.dim() :]).tolist()]  # fmt: skip


def same(one: Tensor, other: Tensor) -> bool:
    """Return True if two tensors are equal bit for bit."""
    return _value(one) == _value(other)


def close(one: Any, other: Any, *, exact: bool) -> bool:
    """Return True if both are equal. Without `exact`, the last bits of numbers and generators may differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            close(one[k], other[k], exact=exact) for k in one if exact or k != "generator"
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(close(a, b, exact=exact) for a, b in zip(one, other))
    if isinstance(one, float) and isinstance(other, float) and not exact:
        return math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-8)
    return bool(one == other)


def kind_of_key(key: str) -> str:
    return key.split("/")[2]
