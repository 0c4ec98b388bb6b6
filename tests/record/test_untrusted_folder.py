"""A run folder from an untrusted source is refused before anything outside it, or too much of it, is read."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tenterhook as th
from tenterhook.record import Batch, Row
from tenterhook.record.run_folder import folder
from tenterhook.record.run_folder.columns import schema
from tenterhook.record.run_folder.folder import Folder
from tenterhook.record.run_folder.footer import read_footer
from tenterhook.record.run_folder.part import Part, read_part
from tenterhook.view.data.contents import Contents
from tests.support.record import forged_parquet as fake

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
    assert refusal(run, text_values=2) == "the file plan.json has up to 3 values; the limit is 2"
    assert refusal(run, part_bytes=size - 1) == f"the part {PART} has {size:,} bytes; the limit is {size - 1:,}"
    assert refusal(run, footer_bytes=footer - 1) == (
        f"the part {PART} has a footer of {footer:,} bytes; the limit is {footer - 1:,}"
    )
    largest = pq.ParquetFile(run / PART).metadata.row_group(0).column(5).total_uncompressed_size
    assert refusal(run, group_bytes=799) == f"the part {PART} has a column of {largest} bytes; the limit is 799"
    assert refusal(run, rows=99, rows_per_byte=0) == f"the part {PART} has 100 rows; the limit is 99"


def test_the_limits_themselves_are_allowed(run: Path):
    size = (run / PART).stat().st_size
    footer = int.from_bytes((run / PART).read_bytes()[-8:-4], "little")
    exact = th.ReadLimits(
        files=2, text_bytes=27, text_values=3, part_bytes=size, footer_bytes=footer, group_bytes=8 * 100 + 200,
        rows=100, rows_per_byte=0, numbers=0, table_bytes=3, series=1,
    )  # fmt: skip
    opened = th.open_run(run, limits=exact)
    assert opened.plan is not None and opened.verify() == 100
    assert len(contents_of(run, exact).targets.names) == 1


def test_a_larger_part_may_have_more_rows(run: Path):
    assert th.open_run(run, limits=th.ReadLimits(rows=1, rows_per_byte=8)).verify() == 100


def test_a_run_of_too_many_curves_has_no_report(tmp_path: Path):
    rows = [Row(0, 0, "h", f"t{i}", "n", 1.0) for i in range(50)]
    th.Store(tmp_path).write([Batch(0, 0, {}, rows)])
    with pytest.raises(th.StoreError, match="50 different curves; the limit is 10"):
        contents_of(tmp_path, th.ReadLimits(series=10))


def contents_of(path: Path, limits: th.ReadLimits) -> Contents:
    """Return what a viewer lists of a run."""
    contents = Contents(folder.Folder(path, limits), [])
    contents.list_parts()
    contents.read_ends()
    return contents


def test_names_that_would_fill_a_page_are_refused(tmp_path: Path):
    rows = [Row(0, 0, "h", "t" * (1000 + i), "n", 1.0) for i in range(50)]
    th.Store(tmp_path).write([Batch(0, 0, {}, rows)])
    with pytest.raises(
        th.StoreError, match=r"the names in part-0001-0-000001\.parquet have 51,227 characters; the limit"
    ):
        contents_of(tmp_path, th.ReadLimits(table_bytes=51_226))
    assert len(contents_of(tmp_path, th.ReadLimits(table_bytes=51_227)).targets.names) == 50


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("t" * 400, None), "the names in 50 rows have 20,100 bytes; the limit is 20,099"),
        (("t", [1.0] * 1000), "the lists in 50 rows have 400,000 bytes; the limit is 399,999"),
        (None, "the different names have 8,677 bytes; the limit is 8,676"),
    ],
)
def test_names_and_lists_that_would_fill_a_table_are_refused(
    tmp_path: Path, row: tuple[str, list[float] | None] | None, message: str
):
    made = [row or ("t" * (100 + step * 3), None) for step in range(50)]
    targets, lists = zip(*made, strict=True)
    table = pa.table(
        [range(50), [0] * 50, ["h"] * 50, targets, ["n"] * 50, [1.0] * 50, lists, [None] * 50, [None] * 50],
        schema=schema(),
    )
    (tmp_path / PART).write_bytes(folder.encode_part(table))
    limit = int(message.split()[-1].replace(",", ""))
    strict, exact = (th.open_run(tmp_path, limits=th.ReadLimits(table_bytes=one)) for one in (limit, limit + 1))
    for read in (strict.frame, strict.table):
        with pytest.raises(th.StoreError, match=message) as error:
            read()
    assert error.value.remedy.startswith("read fewer rows, or if you trust the folder, pass limits=th.ReadLimits(tabl")
    assert len(exact.frame()) == len(exact.table()) == 50
    assert strict.table("x*").num_rows == 0


def test_long_names_in_rows_without_a_hook_are_refused(tmp_path: Path):
    words = [[None] * 50, ["t" * 400] * 50, ["n"] * 50]
    table = pa.table([range(50), [0] * 50, *words, [1.0] * 50, *([[None] * 50] * 3)], schema=schema())
    (tmp_path / PART).write_bytes(folder.encode_part(table))
    with pytest.raises(th.StoreError, match="the names in 50 rows have 20,050 bytes; the limit is 12,800"):
        th.open_run(tmp_path, limits=th.ReadLimits(table_bytes=0)).frame()


def test_lists_of_too_many_numbers_are_refused(tmp_path: Path):
    lists = [[1.0] * 1000] * 50
    words = [["h"] * 50, ["t"] * 50, ["n"] * 50]
    table = pa.table([range(50), [0] * 50, *words, [None] * 50, lists, [None] * 50, [None] * 50], schema=schema())
    (tmp_path / PART).write_bytes(folder.encode_part(table))
    size = (tmp_path / PART).stat().st_size
    most = max(16 * size, 40_000)
    assert most < 50_000 - 50
    with pytest.raises(th.StoreError, match=f"has 49,950 numbers in lists; the limit is {most:,}") as error:
        th.open_run(tmp_path, limits=th.ReadLimits(numbers=40_000))
    assert error.value.remedy == "if you trust the folder, pass limits=th.ReadLimits(numbers=...) to th.open_run"
    assert th.open_run(tmp_path).verify() == 50


def test_a_footer_that_claims_to_be_longer_than_its_part_is_refused(run: Path):
    data = bytearray((run / PART).read_bytes())
    data[-8:-4] = (len(data)).to_bytes(4, "little")
    (run / PART).write_bytes(data)
    with pytest.raises(th.StoreError, match=f"has a footer of {len(data):,} bytes; the limit is {len(data) - 8:,}"):
        th.open_run(run)


# -- footers ----------------------------------------------------------------------------------------------------------


def of_step(footer: fake.Struct) -> fake.Struct:
    """Return the description of the first column in the first row group."""
    return footer.get(4)[1][0].get(1)[1][0].get(3)


def change_element(place: int, number: int, value: Any) -> Callable[[fake.Struct], None]:
    return lambda footer: footer.get(2)[1][place].set(number, value)


def add(footer: fake.Struct, number: int, kind: int, value: Any) -> None:
    footer.fields = sorted([*footer.fields, (number, kind, value)], key=lambda field: field[0])


def nested(depth: int) -> fake.Struct:
    return fake.Struct([(1, fake.STRUCT, nested(depth - 1))]) if depth else fake.Struct()


def wrong_type(footer: fake.Struct) -> None:
    element = footer.get(2)[1][1]
    element.fields = [(n, fake.I64 if n == 3 else kind, value) for n, kind, value in element.fields]


#: changes of a footer, and the message for each of them
FORGED: dict[str, tuple[Callable[[fake.Struct], Any], str]] = {
    "another repetition": (change_element(1, 3, 9), "its columns are not those of a run"),
    "a required column": (change_element(6, 3, 0), "its columns are not those of a run"),
    "an unknown root": (change_element(0, 3, 2), "its columns are not those of a run"),
    "a field of another type": (wrong_type, "it has a field 3 of the type 6, which a store does not write"),
    "a field twice": (lambda f: add(f, 3, fake.I64, 1), "it has a field 3 of the type 6"),
    "few levels": (lambda f: of_step(f).get(16).set(3, (fake.I64, [1])), "column step counts the values of a wrong n"),
    "many levels": (lambda f: of_step(f).get(16).set(2, (fake.I64, [1] * 5)), "column step counts the values of a wr"),
    "short statistics": (lambda f: of_step(f).get(12).set(5, b"x"), "smallest and largest values of the column step"),
    "fewer values": (lambda f: of_step(f).set(5, 99), "the column step of a row group has 99 values in .* for 100 row"),
    "a negative size": (lambda f: of_step(f).set(6, -1), "the column step of a row group has 100 values in -1 bytes"),
    "a position before": (lambda f: of_step(f).set(9, 3), "the column step of a row group is not inside the part"),
    "a position after": (lambda f: of_step(f).set(9, 10**9), "the column step of a row group is not inside the part"),
    "another column": (lambda f: of_step(f).set(3, (fake.BINARY, [b"x"])), "not those of a run: x, rank, hook"),
    "no rows": (lambda f: f.set(3, 0), "its row groups have 100 rows, but its footer has 0"),
    "negative rows": (lambda f: f.get(4)[1][0].set(3, -1), "a row group has -1 rows"),
    "another file": (lambda f: add(f.get(4)[1][0].get(1)[1][0], 1, fake.BINARY, b"/etc/passwd"), "a field 1 of the"),
    "a filter": (lambda f: add(of_step(f), 14, fake.I64, 4), "a field 14 of the type 6, which a store does not write"),
    "encryption": (lambda f: add(f, 8, fake.STRUCT, fake.Struct()), "a field 8 of the type 12"),
    "many keys": (lambda f: f.set(5, (fake.STRUCT, [fake.Struct()] * 65)), "it has a list of 65 items"),
    "deep": (lambda f: add(f, 99, fake.STRUCT, nested(500)), "it has too many structures inside each other"),
    "a long number": (lambda f: f.set(3, 2**63 - 1), "its row groups have 100 rows, but its footer has 9,223,372"),
    "an unknown type": (lambda f: add(f, 99, fake.LIST, (fake.MAP, [])), ""),
}  # fmt: skip


@pytest.mark.parametrize("change", FORGED)
def test_a_forged_footer_is_refused(run: Path, change: str):
    made = fake.footer((run / PART).read_bytes())
    FORGED[change][0](made)
    (run / PART).write_bytes(fake.with_footer((run / PART).read_bytes(), made))
    if not FORGED[change][1]:  # an empty list of unknown items is harmless
        assert th.open_run(run).verify() == 100
        return
    with pytest.raises(th.StoreError, match=FORGED[change][1]) as error:
        th.open_run(run)
    assert error.value.remedy == "restore the file, or move it out of the folder"


def test_every_cut_footer_is_refused(run: Path):
    data = (run / PART).read_bytes()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    for length in range(len(footer)):
        with pytest.raises(ValueError, match=r"cut off|columns|rows|type|items|values|inside"):
            read_footer(footer[:length], len(data) - len(footer) - 8)
    assert read_footer(footer, len(data) - len(footer) - 8).rows == 100


def test_a_footer_of_unknown_fields_is_read(run: Path):
    made = fake.footer((run / PART).read_bytes())
    inner = fake.Struct([(1, fake.TRUE, True), (2, fake.DOUBLE, bytes(8)), (3, fake.BYTE, 1), (20, fake.I16, -9)])
    for number, kind, value in ((90, fake.STRUCT, inner), (91, fake.LIST, (fake.TRUE, [1, 2])), (9000, fake.I64, 5)):
        add(made, number, kind, value)
    (run / PART).write_bytes(fake.with_footer((run / PART).read_bytes(), made))
    assert th.open_run(run).verify() == 100


# -- memory -----------------------------------------------------------------------------------------------------------


@contextmanager
def arrow_memory() -> Iterator[Callable[[], int]]:
    """Yield a function that returns the most memory that Arrow has used in this block."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        yield lambda: pool.max_memory() or 0
    finally:
        pa.set_memory_pool(before)


def test_a_long_word_in_every_row_is_read_once(run: Path):
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.int32()), pa.array(["x" * 10_000]))
    table = pa.concat_tables([pq.read_table(run / PART)] * 100)
    data = fake.written(table.set_column(3, "target", words), arrow_schema=False)
    (run / PART).write_bytes(data)
    with arrow_memory() as most:
        assert th.open_run(run).verify() == 10_000
    assert most() < 20_000_000


def test_superseded_steps_are_removed_one_row_group_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tenterhook.record.run_folder.part.COLUMN_BYTES", 1)
    rows = [Row(step, 0, "h", f"t{target}", "n", 1.0) for target in range(4) for step in range(50_000)]
    th.Store(tmp_path).write([Batch(0, 0, {}, rows)])
    table = Folder(tmp_path).table(PART)
    data = fake.written(table.replace_schema_metadata(pq.read_schema(tmp_path / PART).metadata), row_group_size=10_000)
    (tmp_path / PART).write_bytes(data)
    with arrow_memory() as most:
        Folder(tmp_path).delete_steps(PART, 49_000)
    assert most() < table.nbytes
    assert th.open_run(tmp_path).fetch("select count(*), min(step), max(step) from rows") == [(4 * 49_000, 0, 48_999)]
    (part,) = Folder(tmp_path).parts()
    assert (part.first, part.last, part.rows) == (0, 48_999, 4 * 49_000)
    Folder(tmp_path).delete_steps(PART, 0)
    assert Folder(tmp_path).parts() == []


def test_a_part_is_read_again_only_if_it_has_changed(run: Path, monkeypatch: pytest.MonkeyPatch):
    read: list[str] = []
    monkeypatch.setattr(folder, "read_part", lambda *opened: read.append(opened[0]) or read_part(*opened))
    opened = Folder(run)
    assert [opened.parts()[0].rows for _ in range(3)] == [100] * 3
    assert read == [PART]
    opened.delete_steps(PART, 40)
    assert (opened.parts()[0].last, read) == (39, [PART, PART])


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
    with pytest.raises(th.StoreError, match=r"some rows of part-0001-0-000001\.parquet have no hook, target or name"):
        contents_of(run, th.ReadLimits())


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
    names = ["run*", "run-2", "run?2", "run[2]", "a\\*b\\", "a*b", "\\", "[\\]", "{run-2,a}", "*"]
    for value, name in enumerate(names):
        th.Store(tmp_path / name).write([Batch(0, 0, {}, [Row(0, 0, "h", "t", "n", value)])])
    for value, name in enumerate(names):
        assert th.open_run(tmp_path / name).fetch("select value from rows") == [(value,)]
    together = th.open_run(*(tmp_path / name for name in names))
    assert sorted(together.frame()["value"]) == list(range(len(names)))


def test_a_path_that_is_not_utf_8_is_refused(tmp_path: Path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/run \xff")
    for use in (th.Store, th.open_run):
        with pytest.raises(th.StoreError, match="is not UTF-8, which Arrow and DuckDB need") as error:
            use(path)
        assert error.value.remedy == "rename the folder, or pass a link to it"
        str(error.value).encode()
