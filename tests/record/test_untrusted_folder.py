"""A run folder from an untrusted source is refused before anything outside it, or too much of it, is read."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tenterhook as th
from tenterhook.record import Batch, Row
from tenterhook.record.run_folder.folder import Folder
from tenterhook.record.run_folder.part import Part
from tenterhook.view.series import read_contents

PART = Part.file_name(1, 0, 1)
NOT_REGULAR = "only regular files are read"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    store = th.Store(tmp_path / "run")
    store.write([Batch(step, 0, {}, [Row(step, 0, "h", "t", "n", step / 7)]) for step in range(100)])
    store.keep("plan.json", '{"hooks":[],"tenterhook":1}')
    store.close()
    return tmp_path / "run"


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fail if the block takes longer, even if it hangs."""

    def too_long(number: int, frame: Any) -> None:
        raise AssertionError(f"it took longer than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# -- files that are not regular ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [PART, "plan.json"])
def test_a_link_is_not_followed_even_if_it_was_planted_after_the_listing(run: Path, tmp_path: Path, name: str):
    (run / name).rename(tmp_path / "outside")
    (run / name).symlink_to(tmp_path / "outside")
    with pytest.raises(th.StoreError, match=NOT_REGULAR):
        Folder(run).read(name)


def test_a_fifo_is_neither_waited_for_nor_read(tmp_path: Path):
    os.mkfifo(tmp_path / "plan.json")
    with at_most(5.0), pytest.raises(th.StoreError, match=NOT_REGULAR):
        Folder(tmp_path).read("plan.json")


@pytest.mark.parametrize("name", ["part-0001-0-000009.parquet", "ledger.json"])
@pytest.mark.parametrize("kind", ["link", "folder", "fifo"])
def test_a_file_of_a_run_that_is_not_regular_is_refused(run: Path, name: str, kind: str):
    if kind == "link":
        (run / name).symlink_to(run / PART)
    elif kind == "folder":
        (run / name).mkdir()
    else:
        os.mkfifo(run / name)
    with at_most(5.0), pytest.raises(th.StoreError, match=NOT_REGULAR):
        th.open_run(run)


def test_other_links_in_the_folder_are_not_files_of_it(run: Path, tmp_path: Path):
    (tmp_path / "outside").write_text("outside")
    (run / "notes.txt").symlink_to(tmp_path / "outside")
    (run / "mine.txt").write_text("mine")
    assert Folder(run).names() == ["mine.txt", PART, "plan.json"]


# -- limits -----------------------------------------------------------------------------------------------------------


def refusal(run: Path, **limits: int) -> str:
    with pytest.raises(th.StoreError) as error:
        _ = th.open_run(run, limits=th.ReadLimits(**limits)).plan
    (name,) = [name for name in limits if name != "rows_per_byte"]
    assert error.value.remedy == f"if you trust the folder, pass limits=th.ReadLimits({name}=...) to th.open_run"
    return error.value.fact


def test_a_folder_that_exceeds_a_limit_is_refused(run: Path):
    size = (run / PART).stat().st_size
    footer = int.from_bytes((run / PART).read_bytes()[-8:-4], "little")
    assert refusal(run, files=1) == f"the folder {run} has more than 1 files"
    assert refusal(run, text_bytes=26) == "the file plan.json has 27 bytes; the limit is 26"
    assert refusal(run, part_bytes=size - 1) == f"the part {PART} has {size:,} bytes; the limit is {size - 1:,}"
    assert refusal(run, footer_bytes=footer - 1) == (
        f"the part {PART} has a footer of {footer:,} bytes; the limit is {footer - 1:,}"
    )
    assert refusal(run, group_bytes=799) == f"the part {PART} has a column of 800 bytes; the limit is 799"
    assert refusal(run, rows=99, rows_per_byte=0) == f"the part {PART} has 100 rows; the limit is 99"


def test_the_limits_themselves_are_allowed(run: Path):
    size = (run / PART).stat().st_size
    footer = int.from_bytes((run / PART).read_bytes()[-8:-4], "little")
    exact = th.ReadLimits(
        files=2, text_bytes=27, part_bytes=size, footer_bytes=footer, group_bytes=8 * 100 + 200, rows=100,
        rows_per_byte=0, series=1,
    )  # fmt: skip
    opened = th.open_run(run, limits=exact)
    assert opened.plan is not None and opened.verify() == 100
    assert read_contents(opened).targets == 1


def test_a_larger_part_may_have_more_rows(run: Path):
    assert th.open_run(run, limits=th.ReadLimits(rows=1, rows_per_byte=8)).verify() == 100


def test_a_run_of_too_many_curves_has_no_report(tmp_path: Path):
    rows = [Row(0, 0, "h", f"t{i}", "n", 1.0) for i in range(50)]
    th.Store(tmp_path).write([Batch(0, 0, {}, rows)])
    with pytest.raises(th.StoreError, match="different curves; the limit is 10"):
        read_contents(th.open_run(tmp_path, limits=th.ReadLimits(series=10)))


def test_a_footer_that_claims_to_be_longer_than_its_part_is_refused(run: Path):
    data = bytearray((run / PART).read_bytes())
    data[-8:-4] = (len(data)).to_bytes(4, "little")
    (run / PART).write_bytes(data)
    with pytest.raises(th.StoreError, match=f"has a footer of {len(data):,} bytes; the limit is {len(data) - 8:,}"):
        th.open_run(run)


# -- content ----------------------------------------------------------------------------------------------------------


def forged(run: Path, table: pa.Table) -> None:
    pq.write_table(table, run / PART)


def test_a_part_of_a_later_format_is_refused(run: Path):
    table = pq.read_table(run / PART)
    about = table.schema.metadata[b"tenterhook"]
    forged(run, table.replace_schema_metadata({"tenterhook": about.replace(b'"tenterhook": 1', b'"tenterhook": 2')}))
    with pytest.raises(th.StoreError, match="its format is 2; this version reads format 1"):
        th.open_run(run)


@pytest.mark.parametrize("change", ["another column", "another type", "no metadata"])
def test_a_part_that_no_store_wrote_is_refused(run: Path, change: str):
    table = pq.read_table(run / PART)
    if change == "another column":
        table = table.append_column("path", pa.array(["x"] * len(table)))
    elif change == "another type":
        table = table.set_column(5, "value", table["value"].cast(pa.string()))
    else:
        table = table.replace_schema_metadata(None)
    forged(run, table)
    with pytest.raises(th.StoreError, match=r"its columns are not those of a run|it has no description by a store"):
        th.open_run(run)


def test_every_flipped_byte_in_the_rows_is_noticed(run: Path):
    data = (run / PART).read_bytes()
    values = pq.ParquetFile(run / PART).metadata.row_group(0).column(5)
    first, length = values.dictionary_page_offset or values.data_page_offset, values.total_compressed_size
    unnoticed = []
    for place in range(first, first + length):
        (run / PART).write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        try:
            if Folder(run).table(PART)["value"].to_pylist() != [step / 7 for step in range(100)]:
                unnoticed.append(place - first)
        except th.StoreError:
            continue
    assert unnoticed == []


@pytest.mark.parametrize("column", ["hook", "target", "name"])
def test_rows_without_names_have_no_report(run: Path, column: str):
    table = pq.read_table(run / PART)
    place = table.schema.get_field_index(column)
    forged(run, table.set_column(place, column, pa.nulls(len(table), table.schema.field(place).type)))
    with pytest.raises(th.StoreError, match="some rows of the run have no hook, target, name or step"):
        read_contents(th.open_run(run))


@pytest.mark.parametrize("name", ["ledger", "findings"])
def test_a_json_file_of_another_shape_is_refused(run: Path, name: str):
    (run / f"{name}.json").write_text('{"ledger": [[1]], "findings": {"a": 1}}')
    with pytest.raises(th.StoreError, match=rf"the file {name}\.json does not have the content that a run writes"):
        getattr(th.open_run(run), name)


# -- queries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["read_text", "read_blob", "read_csv"])
def test_a_query_reads_nothing_outside_the_folder(run: Path, tmp_path: Path, function: str):
    (tmp_path / "secret.csv").write_text("a\nsecret\n")
    with pytest.raises(duckdb.Error, match=r"disabled|not allowed|Permission"):
        th.open_run(run).sql(f"select * from {function}('{tmp_path / 'secret.csv'}')").fetchall()
    with pytest.raises(duckdb.Error, match=r"disabled|not allowed|Permission"):
        th.open_run(run).sql(f"copy (select 1) to '{tmp_path / 'written.csv'}'")
    assert not (tmp_path / "written.csv").exists()


def test_a_query_cannot_loosen_the_settings(run: Path):
    opened = th.open_run(run)
    with pytest.raises(duckdb.Error, match="locked"):
        opened.sql("set threads = 1")
    settings = ("autoinstall_known_extensions", "autoload_known_extensions", "enable_external_access")
    found = opened.fetch(f"select {', '.join(f'current_setting({one!r})' for one in settings)}")
    assert found == [(False, False, False)]


def test_wildcards_in_the_name_of_a_folder_match_no_other_folder(tmp_path: Path):
    for name, value in (("run*", 1.0), ("run-2", 2.0), ("run?2", 3.0)):
        th.Store(tmp_path / name).write([Batch(0, 0, {}, [Row(0, 0, "h", "t", "n", value)])])
    for name, value in (("run*", 1.0), ("run?2", 3.0)):
        assert th.open_run(tmp_path / name).fetch("select value from rows") == [(value,)]
