"""A sink that hangs, raises or is slow does not affect the training, and every row is counted."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

import tenterhook as th
from tenterhook.record import Batch, Row, SinkWorker, sink_worker


def batch(step: int, rows: int) -> Batch:
    return Batch(step, 0, {}, [Row(step, 0, "h", f"t{i}", "n", float(i)) for i in range(rows)])


def balanced(one: SinkWorker) -> bool:
    return one.emitted == one.written + one.dropped + one.waiting


def test_everything_arrives_in_order():
    steps: list[int] = []
    one = SinkWorker(lambda entries, step: steps.append(step))
    for step in range(500):
        one.enqueue(batch(step, 3))
    assert one.catch_up(10.0)
    assert steps == list(range(500))
    one.close()
    assert (one.emitted, one.written, one.dropped) == (1500, 1500, 0)


def test_a_hung_sink_delays_nothing_and_its_dropped_rows_are_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sink_worker, "MAX_WAITING", 1000)
    go = threading.Event()
    one = SinkWorker(lambda entries, step: go.wait())
    took = []
    for step in range(10_000):
        made = batch(step, 100)
        start = time.thread_time()
        one.enqueue(made)
        took.append(time.thread_time() - start)
        assert one.waiting <= 1000
    assert sorted(took)[-10] < 1e-3  # the garbage collector may run during a few calls
    assert (one.emitted, one.written, one.dropped, one.waiting) == (10**6, 0, 10**6 - 1000, 1000)
    monkeypatch.setattr(sink_worker, "CLOSE_TIMEOUT", 0.5)
    start = time.monotonic()
    with pytest.warns(RuntimeWarning) as told:
        one.close()
    assert time.monotonic() - start < 2.5
    assert (one.written, one.dropped, one.waiting) == (0, 10**6 - 100, 100)
    assert str(told[0].message) == f"tenterhook: {one.losses()}"
    assert one.losses().endswith(
        "wrote 0 of 1000000 rows; 999000 were dropped because more than 1,000 rows waited for the sink, "
        "900 were dropped because the sink accepted nothing for 0.5 seconds, 100 are still being written"
    )
    go.set()  # the rows that the sink writes in the end are not counted as dropped
    one._thread.join(5)
    assert (one.written, one.dropped, one.waiting) == (100, 10**6 - 100, 0)


def test_the_number_of_dropped_rows_is_recorded_with_the_next_rows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sink_worker, "MAX_WAITING", 20)
    go, told = threading.Event(), []

    def log(entries: dict[str, Any], step: int) -> None:
        go.wait()
        told.append((step, entries.get("tenterhook/dropped")))

    one = SinkWorker(log)
    for step in range(5):
        one.enqueue(batch(step, 10))
    go.set()
    assert one.catch_up(5.0)
    one.enqueue(batch(5, 10))
    one.enqueue(batch(6, 10))
    assert one.catch_up(5.0)
    assert [step for step, _ in told] == [0, 1, 5, 6]
    assert sum(dropped or 0 for _, dropped in told) == one.dropped == 30
    with pytest.warns(RuntimeWarning, match="wrote 40 of 70 rows; 30 were dropped because more than 20 rows waited"):
        one.close()


def test_a_sink_that_raises_now_and_then_gets_the_rest():
    taken: list[int] = []

    def log(entries: dict[str, Any], step: int) -> None:
        if step % 2:
            raise OSError("no space left")
        taken.append(step)

    one = SinkWorker(log)
    with pytest.warns(RuntimeWarning, match="no space left"):
        for step in range(10):
            one.enqueue(batch(step, 2))
        assert one.catch_up(5.0)
    assert taken == [0, 2, 4, 6, 8]
    assert (one.written, one.dropped) == (10, 10)
    assert isinstance(one.error, OSError)
    with pytest.warns(RuntimeWarning, match="wrote 10 of 20 rows; 10 were dropped because the sink raised OSError"):
        one.close()


def test_a_slow_sink_that_accepts_rows_loses_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sink_worker, "CLOSE_TIMEOUT", 1.5)  # far more than a write, also on a busy machine
    one = SinkWorker(lambda entries, step: time.sleep(0.2))
    for step in range(10):
        one.enqueue(batch(step, 2))
    one.close()
    assert (one.written, one.dropped) == (20, 0)


def test_a_hung_sink_does_not_use_up_the_time_of_another_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sink_worker, "CLOSE_TIMEOUT", 1.5)
    go = threading.Event()
    hung, slow = SinkWorker(lambda entries, step: go.wait()), SinkWorker(lambda entries, step: time.sleep(0.2))
    for step in range(8):
        hung.enqueue(batch(step, 2))
        slow.enqueue(batch(step, 2))
    hung.finish()
    slow.finish()
    with pytest.warns(RuntimeWarning, match="14 were dropped because the sink accepted nothing for 1.5 seconds, 2 are"):
        hung.close()
    slow.close()
    assert (slow.written, slow.dropped) == (16, 0)
    go.set()


def test_a_sink_sets_its_own_time_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sink_worker, "CLOSE_TIMEOUT", 0.05)
    wrote: list[int] = []

    class Slow:
        linger = 0.0
        close_timeout = 5.0

        def write(self, batches: Sequence[Batch]) -> None:
            time.sleep(0.3)
            wrote.extend(one.step for one in batches)

        def close(self) -> None: ...

    store, tracker = SinkWorker(Slow()), SinkWorker(lambda entries, step: time.sleep(0.3))
    store.enqueue(batch(0, 2))
    store.close()
    tracker.enqueue(batch(0, 2))
    tracker.enqueue(batch(1, 2))
    with pytest.warns(RuntimeWarning, match="2 were dropped because the sink accepted nothing for 0.05 seconds"):
        tracker.close()
    assert wrote == [0]
    assert (store.written, store.dropped) == (2, 0) and tracker.dropped == 2
    assert th.Store.__init__.__kwdefaults__["close_timeout"] == 30.0


def test_a_wait_of_more_than_a_second_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(sink_worker, "FIRST_REPORT", 0.1)
    one = SinkWorker(lambda entries, step: time.sleep(0.3))
    one.enqueue(batch(0, 2))
    one.close()
    assert capsys.readouterr().err == f"tenterhook: writing the last 2 rows to {one.name}\n"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), MemoryError(), GeneratorExit()])
def test_a_sink_that_ends_its_thread_is_reported(error: BaseException):
    def log(entries: dict[str, Any], step: int) -> None:
        raise error

    one = SinkWorker(log)
    with pytest.warns(RuntimeWarning) as told:
        one.enqueue(batch(0, 2))
        assert one.catch_up(5.0)
        one.enqueue(batch(1, 2))
        one.close()
    assert [f"raised {error!r}, so its rows are dropped" in str(w.message) for w in told] == [True, False]
    assert one.losses().endswith(f"wrote 0 of 4 rows; 4 were dropped because the sink raised {error!r}")


def test_a_fault_in_the_worker_itself_loses_no_count(monkeypatch: pytest.MonkeyPatch):
    def broken(worker: SinkWorker) -> list[Batch]:
        raise MemoryError

    monkeypatch.setattr(SinkWorker, "_take", broken)
    one = SinkWorker(lambda entries, step: None)
    with pytest.warns(RuntimeWarning, match=r"MemoryError|wrote 0 of 4 rows"):
        one.enqueue(batch(0, 2))
        one._thread.join(5)
        one.enqueue(batch(1, 2))
        one.close()
    assert (one.emitted, one.dropped, one.waiting) == (4, 4, 0)
    assert one.losses().endswith("wrote 0 of 4 rows; 4 were dropped because the sink raised MemoryError()")


def test_a_sink_that_closes_its_own_worker_gets_all_rows():
    told: list[int] = []

    def log(entries: dict[str, Any], step: int) -> None:
        told.append(step)
        one.close()

    one = SinkWorker(log)
    with one._changed:  # so that both batches are queued
        one.enqueue(batch(0, 2))
        one.enqueue(batch(1, 2))
    one._thread.join(5)
    one.close()
    assert told == [0, 1] and (one.written, one.dropped) == (4, 0)


def test_rows_are_written_even_if_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch):
    def full(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", full)
    told: list[int] = []
    one = SinkWorker(lambda entries, step: told.append(step))
    one.enqueue(batch(0, 2))
    one.enqueue(batch(1, 2))
    one.close()
    assert told == [0, 1] and (one.written, one.dropped) == (4, 0)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_writes_its_own_rows_and_leaves_the_parent_s_alone():
    go, told = threading.Event(), []
    one = SinkWorker(lambda entries, step: (go.wait(), told.append(step)))
    for step in range(3):
        one.enqueue(batch(step, 1))
    read, write = os.pipe()
    child = os.fork()
    if not child:
        mine: list[int] = []
        one.sink = lambda entries, step: mine.append(step)
        one.enqueue(batch(7, 1))
        fine = one.catch_up(5.0) and mine == [7] and (one.emitted, one.written, one.dropped) == (1, 1, 0)
        os.write(write, b"1" if fine else b"0")
        os._exit(0)
    assert os.read(read, 1) == b"1"
    os.waitpid(child, 0)
    go.set()
    one.close()
    assert told == [0, 1, 2]


def hangs(go: threading.Event) -> Callable[..., Any]:
    return lambda entries, step: go.wait()


def raises(go: threading.Event) -> Callable[..., Any]:
    def log(entries: dict[str, Any], step: int) -> None:
        raise OSError(28, "No space left on device")

    return log


@pytest.mark.filterwarnings("ignore:tenterhook. the sink")
@pytest.mark.parametrize("bad", [hangs, raises])
def test_a_bad_sink_does_not_change_the_training(bad: Callable[[threading.Event], Any]):
    go = threading.Event()

    def train(sinks: list[Any]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        losses = []
        rig = th.attach(model, [th.Hook("s", on="**", at="grad_final", do=th.stats())], optimizer=optimizer,
                        sinks=sinks) if sinks else None  # fmt: skip
        for _ in range(30):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 4)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        if rig is not None:
            go.set()
            rig.detach()
            assert all(balanced(one) for one in rig._recorder.workers)
            assert [one.emitted for one in rig._recorder.workers] == [30 * 4 * 6] * 2
            assert len(good) == 30
        return losses

    good: list[int] = []
    assert train([bad(go), lambda entries, step: good.append(step)]) == train([])


def test_nothing_is_left_running_once_a_rig_is_gone():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, [th.Hook("s", on="**", at="grad_final", do=th.stats())], optimizer=optimizer,
                    sinks=lambda entries, step: None)  # fmt: skip
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    thread = rig._recorder.workers[0]._thread
    assert thread.is_alive()
    rig.detach()
    thread.join(2.0)
    assert not thread.is_alive()


def test_drops_are_reported_again_if_the_write_that_reported_them_failed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sink_worker, "MAX_WAITING", 4)
    told: list[int] = []
    inside, go = threading.Event(), threading.Event()

    class Sink:
        linger = 0.01

        def write(self, batches: Any) -> None:
            inside.set()
            go.wait(5)
            told.append(batches[0].dropped)
            if len(told) == 2:
                raise OSError("once")

        def close(self) -> None: ...

    one = SinkWorker(Sink())
    one.enqueue(batch(0, 3))
    assert inside.wait(5)
    one.enqueue(batch(1, 3))  # the queue is full, so this batch and the next are dropped
    one.enqueue(batch(2, 3))
    go.set()
    assert one.catch_up(5)
    one.enqueue(batch(3, 3))
    with pytest.warns(RuntimeWarning, match="once"):
        assert one.catch_up(5)
    one.enqueue(batch(4, 3))
    assert one.catch_up(5)
    with pytest.warns(RuntimeWarning, match="wrote 6 of 15 rows"):
        one.close()
    assert told == [0, 6, 6 + 3]
    assert (one.emitted, one.written, one.dropped) == (15, 6, 9)


def test_reasons_do_not_accumulate():
    def log(entries: dict[str, Any], step: int) -> None:
        raise OSError(f"step {step}")

    one = SinkWorker(log)
    with pytest.warns(RuntimeWarning):
        for step in range(100):
            one.enqueue(batch(step, 1))
        one.close()
    assert one.dropped == 100 and len(one.lost) == sink_worker.MAX_REASONS + 1
    assert one.lost["of other errors"] == 100 - sink_worker.MAX_REASONS


def test_a_sink_that_cannot_be_closed_is_reported_and_has_its_rows():
    class Sink:
        linger = 0.0

        def write(self, batches: Sequence[Batch]) -> None: ...

        def close(self) -> None:
            raise OSError("gone")

    one = SinkWorker(Sink())
    one.enqueue(batch(0, 2))
    with pytest.warns(RuntimeWarning) as told:
        one.close()
    assert [str(w.message) for w in told] == ["tenterhook: the sink Sink raised OSError('gone') while it was closed"]
    assert (one.written, one.dropped) == (2, 0)
