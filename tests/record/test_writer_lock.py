"""A run folder has one live writer. The lock of a dead process is taken over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from torch import nn

import tenterhook as th
from tenterhook.record import Batch, Row
from tenterhook.record.run_folder import writer_lock

ROWS = [Batch(0, 0, {}, [Row(0, 0, "h", "t", "x", 1.0)])]
OTHER = """
import sys, time
import tenterhook as th
from tenterhook.record import Batch, Row
th.Store(sys.argv[1]).write([Batch(0, 0, {}, [Row(0, 0, "h", "t", "x", 1.0)])])
print("written", flush=True)
time.sleep(60)
"""


@pytest.fixture
def other(tmp_path: Path):
    with subprocess.Popen([sys.executable, "-c", OTHER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "written\n"
        yield process
        process.kill()


def attach(path: Path) -> th.Rig:
    return th.attach(nn.Linear(1, 1), th.Hook("g", on="**", at="grad", do=th.stats()), sinks=th.Store(path))


def test_attach_refuses_a_folder_that_another_process_writes_to(tmp_path: Path, other: subprocess.Popen[str]):
    with pytest.raises(th.StoreError, match=f'another process writes to the run folder .*"process": {other.pid}'):
        attach(tmp_path)


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path, other: subprocess.Popen[str]):
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    th.Store(tmp_path).write(ROWS)
    assert th.open_run(tmp_path).curve("h", "t", "x").values == [1.0]


def test_other_ranks_write_to_the_same_folder(tmp_path: Path, other: subprocess.Popen[str]):
    th.Store(tmp_path).write([Batch(0, 1, {}, [Row(0, 1, "h", "t", "x", 2.0)])])
    assert th.open_run(tmp_path).sql("select rank, value from rows order by rank").fetchall() == [(0, 1.0), (1, 2.0)]


@pytest.fixture
def forked(tmp_path: Path):
    """Fork a process that writes to the folder with a store of its own, and waits."""
    told, go_on = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        try:
            th.Store(tmp_path).write(ROWS)
            os.write(told[1], b"1")
            os.read(go_on[0], 1)
        finally:
            os._exit(0)
    os.close(told[1])
    assert os.read(told[0], 1) == b"1"
    yield child
    os.write(go_on[1], b"1")
    os.waitpid(child, 0)


def test_a_forked_process_is_another_writer(tmp_path: Path, forked: int):
    with pytest.raises(th.StoreError, match=f'another process writes to the run folder .*"process": {forked}'):
        th.Store(tmp_path).write(ROWS)


def test_a_forked_process_does_not_have_the_lock_of_its_parent(tmp_path: Path):
    store = th.Store(tmp_path)
    store.begin(0)
    child = os.fork()
    if not child:
        try:
            th.Store(tmp_path).begin(0)
        except th.StoreError as error:
            os._exit(0 if "another process" in error.fact else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store.close()


def test_a_lock_on_a_file_that_its_last_holder_deleted_is_not_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, opened, real = tmp_path / ".writer-0", [], os.open

    def deleting(name: str, *args: int) -> int:
        descriptor = real(name, *args)
        if not opened:
            os.unlink(path)  # as the last holder does between our opening and our locking
        opened.append(descriptor)
        return descriptor

    monkeypatch.setattr(os, "open", deleting)
    held = writer_lock.acquire(str(tmp_path), 0)
    assert len(opened) == 2 and os.path.samestat(os.stat(path), os.fstat(opened[-1]))
    writer_lock.release(held)
    assert not path.exists()


def test_stores_of_one_process_share_the_lock_and_the_last_one_gives_it_up(tmp_path: Path):
    first, second = th.Store(tmp_path), th.Store(tmp_path)
    first.write(ROWS)
    second.write(ROWS)
    first.close()
    assert (tmp_path / ".writer-0").exists()
    second.close()
    assert not (tmp_path / ".writer-0").exists()


def test_a_rig_gives_the_lock_up_when_it_is_detached(tmp_path: Path):
    rig = attach(tmp_path)
    assert (tmp_path / ".writer-0").exists()
    rig.detach()
    assert not (tmp_path / ".writer-0").exists()


def test_a_planted_link_is_not_followed(tmp_path: Path):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".writer-0").symlink_to(precious)
    with pytest.raises(th.StoreError, match="cannot be written to"):
        attach(tmp_path / "run")
    assert precious.read_text() == "precious"
