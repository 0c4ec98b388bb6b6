"""Every reader gets exactly the recorded rows: no row is missing, duplicated, incomplete or misnamed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import pytest
import torch
from torch import nn

import tenterhook as th
from tenterhook.record import Batch, Row
from tenterhook.record.run_folder import atomic_file
from tenterhook.record.run_folder.folder import Folder, merge_parts
from tenterhook.record.run_folder.part import Part
from tenterhook.record.store import Store
from tests.support.needs import needs
from tests.support.warm_python import warm_python


def train(folder: Path, steps: int, *, start: int = 0, **options: Any) -> list[dict[str, dict[str, Any]]]:
    torch.manual_seed(start)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = [
        th.Hook("norms", on="**", at="grad_final", do=th.stats()),
        th.Hook("bins", on="0.weight", at="grad_final", do=th.histogram(), when=th.When(every=2)),
        th.Hook("own", on="2", at="output", do=tell),
    ]
    told = []
    with th.attach(model, plan, optimizer=optimizer, sinks=Store(folder, **options)) as rig:
        rig._clock.step = start
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(5, 3)).square().mean().backward()
            optimizer.step()
            told.append(rig.values("norms"))
            rig.flush()
    return told


@th.action("tell_mean", at="output", modifies=False)
def tell(x: torch.Tensor, ctx: th.Context) -> None:
    ctx.emit("mean", x.mean())


def test_curves_hold_the_values_of_the_rig(tmp_path: Path):
    told = train(tmp_path / "run", 5)
    run = th.open_run(tmp_path / "run")
    for target, numbers in told[0].items():
        for name in numbers:
            curve = run.curve("norms", target, name)
            assert curve.steps == [0, 1, 2, 3, 4]
            assert curve.values == [step[target][name] for step in told]
    assert run.curve("own", "2", "mean").steps == [0, 1, 2, 3, 4]
    bins = run.sql("select step, values from rows where hook = 'bins' order by step").fetchall()
    assert [step for step, _ in bins] == [0, 2, 4]
    assert [sum(counts) for _, counts in bins] == [12.0] * 3
    assert run.verify() == 5 * (4 * 6 + 1) + 3
    assert json.loads(run.plan)["hooks"][0] == {"at": "grad_final", "do": {"stats": {}}, "id": "norms", "on": "**"}


def test_other_readers_see_the_same(tmp_path: Path):
    pandas, polars = needs("pandas"), needs("polars")
    told = train(tmp_path / "run", 4)
    wanted = [step["0.weight"]["rms"] for step in told]
    files = str(tmp_path / "run" / "*.parquet")
    query = f"select value from '{files}' where hook='norms' and target='0.weight' and name='rms' order by step"
    assert [v for (v,) in duckdb.sql(query).fetchall()] == wanted
    frame = pandas.read_parquet(tmp_path / "run" / next(n for n in os.listdir(tmp_path / "run") if "parquet" in n))
    chosen = frame[(frame.hook == "norms") & (frame.target == "0.weight") & (frame.name == "rms")]
    assert list(chosen.sort_values("step").value) == wanted
    lazy = polars.scan_parquet(files).filter(
        (polars.col("hook") == "norms") & (polars.col("target") == "0.weight") & (polars.col("name") == "rms")
    )
    assert lazy.sort("step").collect()["value"].to_list() == wanted
    assert list(th.open_run(tmp_path / "run").frame("norms", "0.weight", "rms").value) == wanted
    assert len(th.open_run(tmp_path / "run").frame("n*", "*.bias")) == 4 * 2 * 6


def test_small_parts_are_merged_at_close(tmp_path: Path):
    train(tmp_path / "run", 6, linger=0.0)
    files = sorted(os.listdir(tmp_path / "run"))
    assert files[:2] + files[3:] == ["ledger.json", "model.json", "plan.json"] and files[2].endswith(".parquet")


def test_a_resumed_run_replaces_the_steps_that_it_repeats(tmp_path: Path):
    first = train(tmp_path / "run", 6)
    again = train(tmp_path / "run", 3, start=4)
    wanted = [s["2.bias"]["norm"] for s in (*first[:4], *again)]
    run = th.open_run(tmp_path / "run")
    assert run.curve("norms", "2.bias", "norm") == ([0, 1, 2, 3, 4, 5, 6], wanted)
    plain = duckdb.sql(f"select count(*) from '{tmp_path / 'run' / '*.parquet'}' where step >= 4 and hook = 'norms'")
    assert plain.fetchall() == [(3 * 24,)]


def rows(step: int, *, value: float = 0.0, rank: int = 0) -> Batch:
    return Batch(step, rank, {}, [Row(step, rank, "h", "t", "n", value)])


def test_a_reader_leaves_out_superseded_rows_that_still_exist(tmp_path: Path):
    folder = Folder(tmp_path)
    for attempt, steps in ((1, range(5)), (2, range(3, 6)), (3, range(5, 7))):
        store = Store(tmp_path)
        store._attempt, store._superseded = attempt, True
        store.write([rows(step, value=10.0 * attempt + step) for step in steps])
    assert len(folder.parts()) == 3
    found = th.open_run(tmp_path).fetch("select step, value from rows order by step")
    assert found == [(0, 10.0), (1, 11.0), (2, 12.0), (3, 23.0), (4, 24.0), (5, 35.0), (6, 36.0)]


def test_a_curve_has_the_last_call_and_the_first_leaf_of_a_step(tmp_path: Path):
    class Halves(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x, 10 * x

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.halves = Halves()

        def forward(self, x: torch.Tensor) -> None:
            self.halves(x)
            self.halves(x + 1)

    model = Twice()
    hook = th.Hook("h", on="halves", at="output", do=tell)
    with th.attach(model, hook, sinks=Store(tmp_path)) as rig:
        for step in range(3):
            with rig.step():
                model(torch.tensor([float(step)]))
    assert th.open_run(tmp_path).curve("h", "halves", "mean") == ([0, 1, 2], [1.0, 2.0, 3.0])


def test_an_attempt_that_begins_earlier_supersedes_all_attempts_before_it(tmp_path: Path):
    for attempt, steps in ((1, range(6)), (2, range(4, 6)), (3, range(2, 4))):
        store = Store(tmp_path)
        store._attempt, store._superseded = attempt, True
        store.write([rows(step, value=10.0 * attempt + step) for step in steps])
    found = th.open_run(tmp_path).fetch("select step, value from rows order by step")
    assert found == [(0, 10.0), (1, 11.0), (2, 32.0), (3, 33.0)]


def test_ranks_supersede_only_their_own_steps(tmp_path: Path):
    Store(tmp_path).write([rows(step, rank=rank) for step in range(4) for rank in (0, 1)])
    Store(tmp_path).write([rows(2, value=1.0, rank=1)])
    run = th.open_run(tmp_path)
    assert run.curve("h", "t", "n", rank=0).steps == [0, 1, 2, 3]
    assert run.curve("h", "t", "n", rank=1) == ([0, 1, 2], [0.0, 0.0, 1.0])


def test_an_interrupted_merge_duplicates_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = Store(tmp_path)
    for step in range(5):
        store.write([rows(step)])
    folder = Folder(tmp_path)
    deleted: list[str] = []

    def cut(name: str) -> None:
        if len(deleted) == 2:
            raise KeyboardInterrupt
        deleted.append(name)
        os.remove(tmp_path / name)

    monkeypatch.setattr(folder, "delete", cut)
    with pytest.raises(KeyboardInterrupt):
        merge_parts(folder)
    assert len(list(tmp_path.glob("part-*"))) == 4
    assert th.open_run(tmp_path).curve("h", "t", "n").steps == [0, 1, 2, 3, 4]
    assert th.open_run(tmp_path).verify() == 5
    # A resumed run rewrites the merged part. The parts that the merged part replaced must stay hidden.
    Store(tmp_path).write([rows(3, value=9.0)])
    assert th.open_run(tmp_path).curve("h", "t", "n") == ([0, 1, 2, 3], [0.0, 0.0, 0.0, 9.0])
    assert len(list(tmp_path.glob("part-*"))) == 2


def test_several_runs_in_one_query(tmp_path: Path):
    for name, value in (("a", 1.0), ("b", 2.0)):
        Store(tmp_path / name).write([rows(0, value=value)])
    both = th.open_run(tmp_path / "a", tmp_path / "b")
    found = both.sql("select run, value from rows order by run").fetchall()
    assert found == [(str(tmp_path / "a"), 1.0), (str(tmp_path / "b"), 2.0)]


def test_damage_is_found(tmp_path: Path):
    Store(tmp_path).write([rows(step, value=step * 1.5) for step in range(3000)])
    part = tmp_path / Part.file_name(1, 0, 1)
    data = bytearray(part.read_bytes())
    data[len(data) // 4] ^= 0x10
    part.write_bytes(data)
    with pytest.raises(th.StoreError, match=r"is damaged|cannot be read"):
        th.open_run(tmp_path).verify()
    part.write_bytes(data[:100])
    with pytest.raises(th.StoreError, match="cannot be read"):
        th.open_run(tmp_path)


def test_a_missing_run_or_curve_is_reported(tmp_path: Path):
    with pytest.raises(th.StoreError, match="there is no recorded run"):
        th.open_run(tmp_path)
    Store(tmp_path).write([rows(0)])
    with pytest.raises(th.StoreError) as caught:
        th.open_run(tmp_path).curve("h", "t", "m")
    assert caught.value.remedy == "use the nearest name, h/t/n"


def test_a_store_accepts_a_uri(tmp_path: Path):
    store = Store(f"file://{tmp_path}/there")
    store.write([rows(0)])
    assert th.open_run(f"file://{tmp_path}/there").curve("h", "t", "n").steps == [0]


def test_the_number_of_dropped_rows_is_a_row(tmp_path: Path):
    Store(tmp_path).write([Batch(3, 0, {}, [Row(3, 0, "h", "t", "n", 1.0)], dropped=7)])
    assert th.open_run(tmp_path).curve("tenterhook", "recorder", "dropped") == ([3], [7.0])


FULL = """
import resource, signal, sys, warnings
import torch
import tenterhook as th

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
warnings.simplefilter("ignore")

def train(*sinks):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters())
    rig = th.attach(model, [th.Hook("s", on="**", at="grad_final", do=th.stats())], optimizer=optimizer, sinks=sinks)
    losses = []
    for _ in range(200):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 8)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    rig.detach()
    return losses, rig._recorder.workers

bare, _ = train()
store = th.Store(sys.argv[1], linger=0.0)
sys.dont_write_bytecode = True  # otherwise Python would cache truncated modules, which every later process would load
resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))  # no file may be larger, so every write of a part fails
losses, (worker,) = train(store)
print(losses == bare, worker.emitted == 200 * 24, worker.emitted == worker.written + worker.dropped, worker.dropped > 0)
print(type(worker.error).__name__)
"""


def test_a_store_that_cannot_write_does_not_affect_the_training(tmp_path: Path):
    done = subprocess.run([warm_python(), "-c", FULL, tmp_path / "run"], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["True"] * 4 + ["OSError"], done.stderr
    assert [p.name for p in (tmp_path / "run").glob("part-*")] == []


def test_a_forked_process_leaves_the_parent_s_parts_alone(tmp_path: Path):
    store = Store(tmp_path)
    store.write([rows(0, value=1.0)])
    child = os.fork()
    if not child:
        try:
            store.write([rows(1, value=2.0)])
        except th.StoreError as error:
            os._exit(0 if "forked" in error.fact else 1)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert th.open_run(tmp_path).curve("h", "t", "n") == ([0], [1.0])


def test_a_closed_store_continues_without_replacing_its_own_steps(tmp_path: Path):
    store = Store(tmp_path)
    for steps in (range(4), range(4, 8)):
        for step in steps:
            store.write([rows(step)])
        store.close()
    assert th.open_run(tmp_path).curve("h", "t", "n").steps == list(range(8))


def test_a_closing_rank_and_a_merge_do_not_affect_later_parts(tmp_path: Path):
    stores = [Store(tmp_path), Store(tmp_path)]
    for step in range(3):
        for rank in (0, 1):
            stores[rank].write([rows(step, rank=rank)])
    stores[0].close()
    stores[1].write([rows(3, rank=1)])
    th.open_run(tmp_path).merge()
    stores[1].write([rows(4, rank=1)])
    run = th.open_run(tmp_path)
    assert run.curve("h", "t", "n", rank=0).steps == [0, 1, 2]
    assert run.curve("h", "t", "n", rank=1).steps == [0, 1, 2, 3, 4]


def test_a_closed_store_merges_only_its_own_ranks(tmp_path: Path):
    stores = [Store(tmp_path), Store(tmp_path)]
    for step in range(2):
        for rank in (0, 1):
            stores[rank].write([rows(step, rank=rank)])
    stores[0].close()
    assert [(part.rank, part.number, part.last_number) for part in Folder(tmp_path).parts()] == [
        (0, 1, 2),
        (1, 1, 1),
        (1, 2, 2),
    ]


def test_two_stores_in_one_folder_do_not_replace_each_other(tmp_path: Path):
    stores = [Store(tmp_path), Store(tmp_path)]
    for step in range(4):
        stores[step % 2].write([rows(step)])
    assert th.open_run(tmp_path).curve("h", "t", "n").steps == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["step=100", "rank=3", "it's", "lr=0.1 [a,b]"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str):
    Store(tmp_path / name).write([rows(7, value=1.5)])
    assert th.open_run(tmp_path / name).curve("h", "t", "n") == ([7], [1.5])


def test_an_open_run_can_be_read_after_its_parts_are_merged(tmp_path: Path):
    store = Store(tmp_path)
    for step in range(3):
        store.write([rows(step)])
    run = th.open_run(tmp_path)
    store.close()
    assert run.curve("h", "t", "n").steps == [0, 1, 2]


def test_a_folder_that_cannot_be_written_to_is_reported_and_the_rig_works(tmp_path: Path):
    model, hook = nn.Linear(2, 1), th.Hook("s", on="weight", at="grad", do=th.stats())
    rig = th.attach(model, hook, sinks=Store(tmp_path / "run"))
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "run").write_text("")
    with pytest.warns(RuntimeWarning, match=r"writing plan\.json into the run folder failed, and training goes on"):
        rig.add(th.Hook("t", on="bias", at="grad", do=th.stats()))
    with pytest.warns(RuntimeWarning, match=r"the sink Store .*run raised"):
        model(torch.ones(1, 2)).sum().backward()
        rig.flush()
    with pytest.warns(RuntimeWarning) as told:
        rig.detach()
    assert "writing ledger.json into the run folder failed" in str(told[0].message)
    assert "writing model.json into the run folder failed" in str(told[1].message)
    assert "wrote 0 of 12 rows; 12 were dropped because the sink raised" in str(told[2].message)
    assert th.check(rig).codes == ["TH519"] * 4


def test_attach_refuses_a_folder_that_cannot_be_written_to(tmp_path: Path):
    store = Store(tmp_path / "run")
    (tmp_path / "run").rmdir()
    (tmp_path / "run").write_text("")
    with pytest.raises(th.StoreError, match="cannot be written to"):
        th.attach(nn.Linear(2, 1), th.Hook("s", on="weight", at="grad", do=th.stats()), sinks=store)


def test_several_steps_in_one_part_keep_their_own_numbers(tmp_path: Path):
    """Write steps in which some sites did not fire, and in which the targets of a hook change."""
    import itertools

    from tenterhook.record import Batch, StepTable

    def table(step: int, targets: list[str], fired: str) -> StepTable:
        numbers = {
            "a": torch.arange(len(targets)).double() + 10 * step,
            "b": torch.arange(len(targets)).double() - step,
        }
        wide = {"bins": torch.full((len(targets), 3), float(step), dtype=torch.float64)}
        return StepTable(step, targets, bytearray(map(int, fired)), lambda: numbers | wide, width=3,
                     device=torch.device("cpu"))  # fmt: skip

    first, second = ["x", "y", "z"], ["y", "w", "x"]
    batches = [
        Batch(0, 0, {"h": table(0, first, "111")}),
        Batch(1, 0, {"h": table(1, first, "010"), "k": table(1, second, "101")}),
        Batch(2, 0, {"h": table(2, second, "110")}),
        Batch(3, 0, {"h": table(3, first, "011")}, dropped=5),
    ]
    Store(tmp_path).write(batches)
    wanted = {("tenterhook", "recorder", 3, "dropped", 5.0)}
    for batch, (hook, made) in itertools.chain(*([(b, item) for item in b.tables.items()] for b in batches)):
        for target, row in made.rows().items():
            wanted |= {(hook, target, batch.step, name, value if name != "bins" else tuple(value))
                       for name, value in row.items()}  # fmt: skip
    rows = th.open_run(tmp_path).sql("select hook, target, step, name, value, values from rows").fetchall()
    assert {(*row[:4], row[4] if row[5] is None else tuple(row[5])) for row in rows} == wanted
    assert len(rows) == len(wanted)


def test_a_folder_of_runs_names_the_runs(tmp_path: Path):
    train(tmp_path / "runs" / "model", 2)
    with pytest.raises(th.StoreError) as error:
        _ = th.open_run(tmp_path / "runs").frame("norms", "*")
    assert error.value.remedy == f"pass one of {tmp_path / 'runs' / 'model'}"


def test_a_part_whose_name_may_not_be_on_the_disk_is_not_counted_and_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def broken(path: str) -> None:
        raise OSError(5, "Input/output error")

    store = Store(tmp_path)
    monkeypatch.setattr(atomic_file, "_sync_folder", broken)
    with pytest.raises(OSError, match="Input/output"):
        store.write([rows(0, value=1.0)])
    assert [path.name for path in tmp_path.iterdir()] == [".writer-0"]
