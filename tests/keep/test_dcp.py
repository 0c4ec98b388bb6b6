"""Test states in torch.save, safetensors and distributed checkpoints, where dropped entries must cause an error."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.api import CheckpointException

import tenterhook as th
from tests.keep.conftest import (
    ACTIONS,
    HEADER,
    PLAN,
    TENSORS,
    Net,
    Run,
    attached,
    copied,
    counters,
    fired,
    fresh,
    header,
    identical,
    same,
    through_torch,
)

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")


def save(path: Path, **parts: object) -> Path:
    dcp.save(parts, checkpoint_id=path)
    return path


def load(path: Path, **parts: object) -> None:
    dcp.load(parts, checkpoint_id=path)


def goes_on(run: Run, twin: Run) -> None:
    same(twin.state(), run.state())
    assert counters(twin.rig) == counters(run.rig)
    for one in (run, twin):
        one.backward(7, 1)
        one.optimizer.step()
        one.train([8, 9])
    same(twin.state(), run.state())


def count(steps: int, id: str = "n") -> Run:
    return attached(th.Hook(id, on="**", at="grad", do=ACTIONS.get("count")())).train(range(steps))


# -- in files and bytes -----------------------------------------------------------------------------------------------


CONTAINERS = {
    "torch": through_torch,
    "safetensors": lambda state: safetensors.torch.load(safetensors.torch.save(state)),
    "beside a model": lambda state: through_torch({"model": Net().state_dict(), "hooks": state})["hooks"],
    "among a model": lambda state: through_torch({**Net().state_dict(), **state}),
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_through_containers(container, midway: Run):
    state = midway.rig.state_dict()
    read = CONTAINERS[container](state)
    same({key: read[key] for key in state}, state)
    model, optimizer = fresh(midway)
    goes_on(midway, Run(model, optimizer, th.restore(model, read, optimizer=optimizer, actions=ACTIONS)))


KEPT = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
    torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
    torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


@pytest.mark.parametrize("dtype", KEPT)
def test_every_dtype_is_kept_as_it_is(dtype):
    values = torch.arange(12).reshape(3, 4).to(dtype)
    kept = {"t": values, "transposed": values.t(), "number": values[1, 1], "none": values[:0]}
    run, other = fired(lambda g, ctx: ctx.state.update(kept)), nn.Linear(2, 2)
    state = through_torch(run.rig.state_dict())
    assert state[f"tenterhook/rank0/index/h/{str(dtype)[6:]}/2/t"].tolist() == [[0, 3, 4], [1, 3, 4]]
    again = th.restore(other, state, actions=run.rig._actions)
    held = again._attached_hook("h").state.free
    assert held.keys() == {(slot, name) for slot in (0, 1) for name in kept}
    for (_, name), tensor in held.items():
        assert identical(tensor, kept[name])
    same(again.state_dict(), state)


def test_every_byte_of_a_large_tensor_is_vouched_for():
    large = torch.zeros((1 << 20) + 3, dtype=torch.uint8)
    run, other = fired(lambda g, ctx: ctx.state.update(it=large)), nn.Linear(2, 2)
    state = run.rig.state_dict()
    kept = state["tenterhook/rank0/free/h/uint8/1/it"]
    assert header(state)["entries"]["free/h/uint8/1/it"]["digest"] == (
        hashlib.blake2b(bytes(2 * len(large)), digest_size=16).hexdigest()
    )
    for at in (0, (1 << 20) - 1, 1 << 20, -1):
        kept[at] ^= 1
        with pytest.raises(th.StateError):
            th.restore(other, state, actions=run.rig._actions)
        kept[at] ^= 1


# -- distributed, there and back --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [str, Path, FileSystemReader])
def test_into_a_rig_that_is_attached(name: Callable[[Path], object], midway: Run, tmp_path: Path):
    save(tmp_path, model=midway.model.state_dict(), hooks=midway.rig)
    model, optimizer = fresh(midway)
    rig = th.attach(model, PLAN, optimizer=optimizer, actions=ACTIONS, tensors=TENSORS)
    load(tmp_path, model=model.state_dict(), hooks=th.DcpState(name(tmp_path), rig))
    goes_on(midway, Run(model, optimizer, rig))


def test_for_restore(midway: Run, tmp_path: Path):
    state = midway.rig.state_dict()
    save(tmp_path, hooks=midway.rig)
    held = th.DcpState(tmp_path)
    load(tmp_path, hooks=held)
    same(held.state_dict(), state)
    model, optimizer = fresh(midway)
    goes_on(midway, Run(model, optimizer, th.restore(model, held.state_dict(), optimizer=optimizer, actions=ACTIONS)))


def test_saved_while_training_goes_on(midway: Run, tmp_path: Path):
    state = midway.rig.state_dict()
    saving = dcp.async_save({"hooks": midway.rig}, checkpoint_id=tmp_path)
    midway.backward(7, 1)
    midway.optimizer.step()
    midway.train([8])
    saving.result()
    held = th.DcpState(tmp_path)
    load(tmp_path, hooks=held)
    same(held.state_dict(), state)
    assert midway.rig.step_count == 9


def test_as_a_dict_at_the_top_or_further_below(midway: Run, tmp_path: Path):
    state = midway.rig.state_dict()
    dcp.save(state, checkpoint_id=tmp_path / "top")
    top = th.DcpState(tmp_path / "top").state_dict()
    dcp.load(top, checkpoint_id=tmp_path / "top")
    same(top, state)
    save(tmp_path / "below", app={"hooks": state, "epoch": 3})
    below = th.DcpState(tmp_path / "below").state_dict()
    load(tmp_path / "below", app={"hooks": below})
    same(below, state)


def test_the_state_has_no_entry_that_would_be_pickled(midway: Run, tmp_path: Path):
    save(tmp_path, hooks=midway.rig)
    entries = FileSystemReader(tmp_path).read_metadata().state_dict_metadata
    assert {key.removeprefix("hooks.") for key in entries} == midway.rig.state_dict().keys()
    assert {type(entry).__name__ for entry in entries.values()} == {"TensorStorageMetadata"}


def test_what_is_handed_out_before_loading_is_no_state(run: Run, tmp_path: Path):
    held = th.DcpState(save(tmp_path, hooks=run.rig))
    state = run.rig.state_dict()
    assert {key: (t.dtype, t.shape) for key, t in held.state_dict().items()} == {
        key: (t.dtype, t.shape) for key, t in state.items()
    }
    before = copied(state)
    places = held.state_dict()
    places[HEADER].zero_()
    with pytest.raises(th.StateError):
        run.rig.load_state_dict(places)
    same(run.rig.state_dict(), before)


# -- several rigs -----------------------------------------------------------------------------------------------------


def test_several_rigs_are_told_apart_by_their_keys(tmp_path: Path):
    one, two = count(1), count(2)
    save(tmp_path, hooks=one.rig, hooks2=two.rig, model=one.model.state_dict())
    with pytest.raises(th.StateError) as error:
        th.DcpState(tmp_path)
    assert str(error.value) == (
        "the checkpoint holds the hooks of 2 rigs: 'hooks', 'hooks2'\n"
        "  remedy: choose one: DcpState(..., under='hooks')"
    )  # fmt: skip
    first, second = count(0), count(0)
    load(
        tmp_path,
        hooks=th.DcpState(tmp_path, first.rig, under="hooks"),
        hooks2=th.DcpState(tmp_path, second.rig, under="hooks2"),
    )
    same(first.rig.state_dict(), one.rig.state_dict())
    same(second.rig.state_dict(), two.rig.state_dict())
    with pytest.raises(th.StateError) as error:
        th.DcpState(tmp_path, under="hook")
    assert str(error.value) == "the checkpoint holds no hooks under 'hook'\n  remedy: use one of 'hooks', 'hooks2'"


def test_a_key_that_need_not_be_said_may_be_said(run: Run, tmp_path: Path):
    save(tmp_path, hooks=run.rig)
    held = th.DcpState(tmp_path, under="hooks")
    load(tmp_path, hooks=held)
    same(held.state_dict(), run.rig.state_dict())


def test_what_is_loaded_as_rename_and_strict_say(tmp_path: Path):
    saved, run, other = count(2), count(0), count(0, id="m")
    save(tmp_path, hooks=saved.rig)
    load(tmp_path, hooks=th.DcpState(tmp_path, other.rig, strict=False))
    assert other.rig.step_count == 2 and other.rig.loaded and other.rig.ledger["m"].fired == 0
    with pytest.raises(th.MismatchError):
        load(tmp_path, hooks=th.DcpState(tmp_path, run.rig, rename={"head": "tail"}))


def test_only_this_ranks_entries_have_a_place(run: Run, tmp_path: Path):
    state = run.rig.state_dict()
    save(tmp_path, hooks=state | {key.replace("rank0", "rank1"): tensor for key, tensor in state.items()})
    assert th.DcpState(tmp_path).state_dict().keys() == state.keys()


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_a_checkpoint_without_hooks(run: Run, tmp_path: Path):
    save(tmp_path, model=run.model.state_dict())
    with pytest.raises(th.StateError) as error:
        th.DcpState(tmp_path, run.rig)
    assert str(error.value) == 'the checkpoint holds no hooks\n  remedy: save them: dcp.save({..., "hooks": rig})'


def test_a_checkpoint_of_too_many_entries_is_refused(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    save(tmp_path, hooks=run.rig)
    entries = len(FileSystemReader(tmp_path).read_metadata().state_dict_metadata)
    monkeypatch.setattr("tenterhook.keep.dcp.MAX_KEYS", entries)
    th.DcpState(tmp_path)
    monkeypatch.setattr("tenterhook.keep.dcp.MAX_KEYS", entries - 1)
    with pytest.raises(th.StateError) as error:
        th.DcpState(tmp_path)
    assert str(error.value) == f"the checkpoint has {entries} entries, but the limit is {entries - 1}"


@pytest.mark.parametrize(
    ("key", "make"),
    [
        ("tenterhook/rank0/more", lambda: "text"),
        ("tenterhook/rank0/more", lambda: {"a": "text"}),
        ("tenterhook/rank0/more", lambda: torch.ones(2, dtype=torch.complex32)),
        (HEADER, lambda: torch.zeros((1 << 20) + 1, dtype=torch.uint8)),
        (HEADER, lambda: "text"),
    ],
    ids=["text", "dict", "dtype", "long header", "text header"],
)
@pytest.mark.filterwarnings("ignore:ComplexHalf:UserWarning")
def test_entries_that_are_not_ours_are_refused_before_they_are_read(key, make, run: Run, tmp_path: Path):
    save(tmp_path, hooks={**run.rig.state_dict(), key: make()})
    for file in tmp_path.glob("*.distcp"):
        file.unlink()
    shown = f"{key}.a" if isinstance(make(), dict) else key
    with pytest.raises(th.StateError) as error:
        th.DcpState(tmp_path)
    assert str(error.value) == f"the saved state is damaged: the entry {shown!r} is not a tensor that a rig can save"


def test_a_state_that_does_not_fit_leaves_the_rig_as_it_was(tmp_path: Path):
    saved, other = count(2), count(1, id="m")
    save(tmp_path, hooks=saved.rig)
    before = other.rig.state_dict()
    with pytest.raises(th.MismatchError) as error:
        load(tmp_path, hooks=th.DcpState(tmp_path, other.rig))
    assert "hook 'n': saved, but not in this plan" in str(error.value)
    same(other.rig.state_dict(), before)


def test_a_damaged_file_is_noticed(run: Run, tmp_path: Path):
    save(tmp_path, hooks=run.rig)
    (file,) = tmp_path.glob("*.distcp")
    data = bytearray(file.read_bytes())
    place = data.index(run.rig.state_dict()["tenterhook/rank0/state/zscore/mean"].numpy().tobytes())
    data[place] ^= 1
    file.write_bytes(data)
    before = run.rig.state_dict()
    with pytest.raises(th.StateError) as error:
        load(tmp_path, hooks=th.DcpState(tmp_path, run.rig))
    assert str(error.value) == (
        "the saved state is damaged: the entry 'tenterhook/rank0/state/zscore/mean' has changed since it was saved\n"
        "  remedy: load an earlier checkpoint"
    )
    same(run.rig.state_dict(), before)


# -- a rig given to dcp.load as it is ---------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 3, 10, 11])
def test_a_fresh_rig_has_no_place_for_the_state_and_torch_says_so(steps, tmp_path: Path):
    saved, run = count(steps), count(0)
    save(tmp_path, hooks=saved.rig)
    before = run.rig.state_dict()
    with pytest.raises(CheckpointException, match=r"Size mismatch between saved .* for hooks.tenterhook/rank0/header"):
        load(tmp_path, hooks=run.rig)
    same(run.rig.state_dict(), before)


def test_a_rig_that_has_run_as_the_saved_one_has_every_place(tmp_path: Path):
    saved, run = count(3), count(2)
    save(tmp_path, hooks=saved.rig)
    load(tmp_path, hooks=run.rig)
    same(run.rig.state_dict(), saved.rig.state_dict())


def test_a_stateless_rig_that_was_never_due_has_every_place(tmp_path: Path):
    """Check the only case in which a new rig has all entries of the saved one, so that `dcp.load` loads it."""

    def idle(steps: int) -> Run:
        hook = th.Hook("n", on="**", at="grad", do=th.scale(2.0), when=th.When(start=100))
        return attached(hook).train(range(steps))

    saved, run = idle(5), idle(0)
    save(tmp_path, hooks=saved.rig)
    load(tmp_path, hooks=run.rig)
    assert run.rig.step_count == 5


def test_a_saved_rig_of_equal_header_and_other_entries_is_not_passed_over(tmp_path: Path):
    """Check headers of equal length, where the saved one lists entries that the new rig does not have."""
    saved = count(3)
    state: dict[str, Tensor] = saved.rig.state_dict()
    save(tmp_path, hooks=saved.rig)
    places = {HEADER: torch.zeros_like(state[HEADER])}
    load(tmp_path, hooks=places)
    run = count(0)
    with pytest.raises(th.StateError) as error:
        run.rig.load_state_dict(places)
    assert str(error.value).startswith("the saved state is damaged: the entry 'tenterhook/")
    assert " is missing\n" in str(error.value) and run.rig.step_count == 0
