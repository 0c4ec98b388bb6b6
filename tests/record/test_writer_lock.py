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
