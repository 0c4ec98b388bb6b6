"""However the process ends, the rows in memory are written first, and the program's own handlers are called."""

from __future__ import annotations

import atexit
import importlib
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tenterhook as th
from tenterhook.record import Batch, Recorder, Row, SinkWorker, StepTable, containment, sink_worker

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


class Collecting:
    """Collect the steps for a minute, and write them slowly."""

    linger = 60.0

    def __init__(self) -> None:
        self.steps: list[int] = []

    def write(self, batches: Sequence[Batch]) -> None:
        time.sleep(0.05)
        self.steps += [batch.step for batch in batches]

    def close(self) -> None: ...


def batch(step: int) -> Batch:
    return Batch(step, 0, {}, [Row(step, 0, "h", "t", "n", 1.0)])


def forked(act: Callable[[], bool]) -> int:
    """Run a function in a forked process. Return its exit code, which is 0 if the function returns True.

    A process that hangs is ended by a signal.
    """
    child = os.fork()
    if not child:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)
            os._exit(0 if act() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def own_handler() -> Iterator[list[int]]:
    """Install a handler of SIGTERM that goes on, and return the list to which it appends."""
    calls: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: calls.append(number))
    yield calls
    signal.signal(signal.SIGTERM, before)


def trained(sink: Any) -> tuple[th.Rig, nn.Module]:
    model = nn.Linear(2, 1)
    rig = th.attach(model, th.Hook("s", on="**", at="grad", do=th.stats()), sinks=sink)
    model(torch.ones(1, 2)).sum().backward()
    return rig, model


# -- SIGTERM ----------------------------------------------------------------------------------------------------------


def test_sigterm_writes_the_rows_and_calls_the_handler_of_the_program(own_handler: list[int]):
    sink = Collecting()
    rig, model = trained(sink)
    os.kill(os.getpid(), signal.SIGTERM)
    assert sink.steps == [0] and own_handler == [signal.SIGTERM]
    model(torch.ones(1, 2)).sum().backward()  # the program goes on, and so does the recording
    rig.detach()
    assert sink.steps == [0, 1]


def test_sigterm_ends_the_process_after_the_rows_are_written(tmp_path: Path):
    def train() -> bool:
        _rig, _model = trained(th.Store(tmp_path / "run", linger=60.0))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
        return False

    assert forked(train) == -signal.SIGTERM
    assert th.open_run(tmp_path / "run").curve("s", "weight", "norm").steps == [0]


class Hung(Collecting):
    """Accept nothing."""

    close_timeout = 0.2

    def write(self, batches: Sequence[Batch]) -> None:
        threading.Event().wait()


def test_sigterm_ends_the_process_if_warnings_are_errors():
    def train() -> bool:
        _rig, _model = trained(Hung())
        warnings.simplefilter("error")
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
        return False

    assert forked(train) == -signal.SIGTERM


def test_an_ignored_sigterm_stays_ignored(tmp_path: Path):
    def train() -> bool:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sink = Collecting()
        _rig, _model = trained(sink)
        os.kill(os.getpid(), signal.SIGTERM)
        return sink.steps == [0]

    assert forked(train) == 0


def test_a_handler_may_run_while_its_thread_holds_the_lock_of_a_worker():
    one = SinkWorker(lambda entries, step: None)

    def interrupted() -> None:
        with one._changed:  # the handler runs here
            one.enqueue(batch(0))
            one.flush()

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(5.0)
    assert not thread.is_alive()
    one.close()


def test_a_forked_process_writes_no_flight_report(tmp_path: Path):
    flight = th.Flight(tmp_path / "flights")
    rig, _model = trained(flight)

    def fail() -> bool:
        flight.fail("SIGTERM in a worker of a data loader")
        return not (tmp_path / "flights").exists()

    assert forked(fail) == 0
    flight.fail("in the process itself")
    assert len(flight.reports) == 1
    rig.detach()


# -- the end of the interpreter ---------------------------------------------------------------------------------------


def test_the_end_of_the_interpreter_waits_for_the_sinks():
    def end() -> bool:
        atexit._clear()
        module = importlib.reload(sink_worker)  # registers its function again
        sinks = [Collecting(), Collecting()]
        workers = [module.SinkWorker(sink) for sink in sinks]
        for step in range(3):
            for worker in workers:
                worker.enqueue(batch(step))
        atexit._run_exitfuncs()
        return [sink.steps for sink in sinks] == [[0, 1, 2]] * 2

    assert forked(end) == 0


def test_every_sink_is_closed_at_exit_if_warnings_are_errors():
    def end() -> bool:
        sinks = [Hung(), Collecting(), Hung()]
        workers = [SinkWorker(sink) for sink in sinks]
        for worker in workers:
            worker.enqueue(batch(0))
        warnings.simplefilter("error")
        sink_worker._at_exit()
        return sinks[1].steps == [0] and not any(worker in sink_worker._open for worker in workers)

    assert forked(end) == 0


# -- errors on threads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(3)])
def test_an_error_on_a_thread_is_reported(error: BaseException):
    def fail() -> None:
        raise error

    with pytest.warns(RuntimeWarning) as caught:
        containment.call_and_report("writing a report", fail)
    assert [str(one.message) for one in caught] == [f"tenterhook: writing a report failed: {error!r}"]


def test_a_warning_that_is_an_error_is_printed_on_a_thread(capsys: pytest.CaptureFixture[str]):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        containment.warn_or_print("tenterhook: lost")
    assert capsys.readouterr().err == "tenterhook: lost\n"


# -- the queue of a sink ----------------------------------------------------------------------------------------------


def test_flush_does_not_wait_until_the_sink_would_write_by_itself():
    sink = Collecting()
    one = SinkWorker(sink)
    one.enqueue(batch(0))
    assert one.catch_up(5.0)
    assert sink.steps == [0]
    one.enqueue(batch(1))
    one.flush()
    assert sink.steps == [0, 1]
    one.close()


def test_a_forked_process_begins_with_an_empty_queue():
    go = threading.Event()
    one = SinkWorker(lambda entries, step: go.wait())
    for step in range(3):
        one.enqueue(batch(step))

    def write() -> bool:
        mine: list[int] = []
        one.sink = lambda entries, step: mine.append(step)
        one.enqueue(batch(7))
        return one.catch_up(5.0) and mine == [7] and (one.emitted, one.written) == (1, 1)

    assert forked(write) == 0
    go.set()
    one.close()
    assert (one.emitted, one.written, one.dropped) == (3, 3, 0)


def test_rows_for_a_closed_sink_are_counted():
    one = SinkWorker(lambda entries, step: None)
    one.enqueue(batch(0))
    one.close()
    one.enqueue(batch(1))
    assert (one.emitted, one.written, one.dropped, one.waiting) == (2, 1, 1, 0)
    assert one.lost == {"the sink was closed": 1}


# -- the rows of a step -----------------------------------------------------------------------------------------------


def test_rows_that_exceed_the_limit_of_a_step_are_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.modules["tenterhook.record.recorder"], "MAX_EMITTED", 2)
    recorder = Recorder([], 0)
    for place in range(5):
        recorder.emit("h", f"t{place}", "n", 0, 0, 1.0)
    recorder.flush(0)
    assert recorder.dropped == 3 and len(recorder.emitted("h")) == 2
    assert recorder.losses() == ["3 rows or captures exceeded the limit per step and were dropped"]


def test_an_emitted_number_is_copied():
    recorder, number = Recorder([], 0), torch.tensor(1.0, dtype=torch.float64)
    recorder.emit("h", "t", "n", 0, 0, number)
    number.fill_(7.0)
    recorder.flush(0)
    assert recorder.emitted("h")[0].value == 1.0


def test_only_rank_0_records_numbers_that_are_equal_on_all_ranks():
    for rank, steps in ((0, [0, 1]), (1, [1])):
        written: list[int] = []
        recorder = Recorder([lambda entries, step, written=written: written.append(step)], rank)
        numbers = {"n": torch.ones(1, dtype=torch.float64)}
        for step in (0, 1):
            table = StepTable(step, ["t"], bytearray([1]), lambda: numbers, width=0, device=torch.device("cpu"))
            recorder.add_table("h", table, shared=step == 0)
            recorder.flush(step)
        recorder.close()
        assert written == steps
