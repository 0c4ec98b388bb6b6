"""A file is on the disk when its writer returns, and a power failure at any moment leaves the old or the new file."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from tenterhook.record import Batch, Row, Store, open_run
from tenterhook.record.run_folder.atomic_file import write_file
from tenterhook.record.run_folder.folder import Folder, merge_parts
from tests.support.record.file_layer import FileLayer, Names, PowerFailure

BOTH = pytest.mark.parametrize("names", ["synced", "current"])


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


def rows(step: int) -> list[Batch]:
    return [Batch(step, 0, {}, [Row(step, 0, "h", "t", "n", step * 1.5)])]


def test_the_content_is_synced_before_the_rename_and_the_name_after_it(place: Path):
    with FileLayer(place).installed() as layer:
        write_file(place / "a", b"new")
    assert layer.calls == ["create", "sync file", "replace", "sync folder"]


def test_a_new_file_is_linked_so_that_it_replaces_nothing(place: Path):
    with FileLayer(place).installed() as layer:
        write_file(place / "a", b"new", new=True)
    assert layer.calls == ["create", "sync file", "link", "unlink", "sync folder"]
    with pytest.raises(FileExistsError):
        write_file(place / "a", b"newer", new=True)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == {"a": b"new"}


@BOTH
@pytest.mark.parametrize("new", [True, False])
def test_a_file_is_on_the_disk_when_it_is_written(place: Path, names: Names, new: bool):
    with FileLayer(place).installed() as layer:
        write_file(place / "a", b"content", new=new)
    assert layer.after_power_failure(names)["a"] == b"content"


@BOTH
def test_a_power_failure_leaves_the_old_or_the_new_file(place: Path, names: Names):
    found = []
    for moment in range(4):
        write_file(place / "a", b"old")
        with FileLayer(place, fails_before=moment).installed() as layer, pytest.raises(PowerFailure):
            write_file(place / "a", b"new")
        found.append(layer.after_power_failure(names)["a"])
    last = {"synced": b"old", "current": b"new"}[names]  # the file was renamed, and its folder is not synced yet
    assert found == [b"old", b"old", b"old", last]


@BOTH
def test_the_rows_of_a_write_that_returned_survive_a_power_failure(place: Path, tmp_path: Path, names: Names):
    store = Store(place)
    with FileLayer(place).installed() as layer:
        store.write(rows(0))
        store.write(rows(1))
        disk = layer.restart(tmp_path / "disk", names)
    assert open_run(disk).curve("h", "t", "n") == ([0, 1], [0.0, 1.5])
    store.close()


@BOTH
@pytest.mark.parametrize("moment", range(4))
def test_a_power_failure_during_a_merge_neither_loses_nor_duplicates_a_row(
    place: Path, tmp_path: Path, names: Names, moment: int
):
    store = Store(place)
    for step in range(3):
        store.write(rows(step))
    with FileLayer(place, fails_before=moment).installed() as layer, pytest.raises(PowerFailure):
        merge_parts(Folder(place))
    disk = layer.restart(tmp_path / "disk", names)
    for path in disk.glob(".part-*"):
        path.unlink()  # the temporary file of the part that was being written
    run = open_run(disk)
    assert run.verify() == 3 and run.curve("h", "t", "n").steps == [0, 1, 2]


def test_a_merge_syncs_the_new_part_before_it_deletes_the_old_ones(place: Path, monkeypatch: pytest.MonkeyPatch):
    store = Store(place)
    for step in range(2):
        store.write(rows(step))
    folder, calls = Folder(place), []
    monkeypatch.setattr(folder, "delete", lambda name: calls.append((name, list(layer.calls))))
    with FileLayer(place).installed() as layer:
        merge_parts(folder)
    assert [name for name, _ in calls] == ["part-0001-0-000001.parquet", "part-0001-0-000002.parquet"]
    assert {tuple(before) for _, before in calls} == {("create", "sync file", "replace", "sync folder")}


def test_a_link_that_was_planted_under_the_temporary_name_is_not_followed(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    monkeypatch.setattr(secrets, "token_hex", lambda size: "guessed")
    (place / ".a.guessed").symlink_to(precious)
    with pytest.raises(FileExistsError):
        write_file(place / "a", b"new")
    assert precious.read_bytes() == b"precious" and not (place / "a").exists()


def test_a_link_with_the_name_of_the_file_is_replaced(place: Path, tmp_path: Path):
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    (place / "a").symlink_to(precious)
    write_file(place / "a", b"new")
    assert precious.read_bytes() == b"precious"
    assert (place / "a").read_bytes() == b"new" and not (place / "a").is_symlink()


def test_a_file_that_cannot_be_written_leaves_no_temporary_file(place: Path, monkeypatch: pytest.MonkeyPatch):
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_file(place / "a", b"new")
    assert list(place.iterdir()) == []
