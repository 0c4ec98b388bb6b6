"""Write the run folders that a server shows while it is fuzzed: ordinary, odd and damaged ones, and one that grows."""

from __future__ import annotations

import hashlib
import math
import random
import threading
from functools import partial
from pathlib import Path

import torch
from torch import nn

import tenterhook as th
from tenterhook.diff.plan import diff_plan
from tenterhook.record import Batch, Row, StepTable

#: begins the name of every target, so that an answer with data of a run can be recognized
MARK = "markedtarget"
#: the run that is written while the server is fuzzed
LIVE = "growing"
#: the runs that cannot be read, or only in part
DAMAGED = ("damaged part", "damaged page", "damaged ledger")
#: number of targets of the run with many targets
MANY = 1000
#: names that need care in a path, in a query or in SQL
ODD_NAMES = (
    "with several  spaces",
    "läufe-运行-🏃-e\u0301",
    "100% %2e%2e%2f %00 %zz",
    "a&b=c+d;e#f?g",
    "new\nline\r\n\r\nhttp: header",
    "quote'\"; drop table places; --",
    "run[1]*{x}\\",
    "-rf",
    "..hidden not",
    "x" * 250,
    "outer/inner",
)


class _Net(nn.Module):
    """A model whose targets have recognizable names."""

    def __init__(self) -> None:
        super().__init__()
        self.add_module(MARK, nn.Linear(4, 8))
        self.add_module(MARK + "2", nn.Sequential(nn.Tanh(), nn.Linear(8, 2)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.children():
            x = layer(x)
        return x


def _train(folder: Path, seed: int, plan: th.Plan) -> None:
    """Record four steps of a small model."""
    torch.manual_seed(seed)
    model = _Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with th.attach(model, plan, optimizer=optimizer, sinks=th.Store(folder)) as rig:
        for _ in range(4):
            with rig.step():
                optimizer.zero_grad()
                model(torch.randn(3, 4)).square().sum().backward()
                optimizer.step()


def _store(folder: Path, rows: list[Row], *, parts: int = 3) -> None:
    """Write rows into so many parts."""
    store = th.Store(folder, linger=0)
    steps = sorted({row.step for row in rows})
    each = -(-len(steps) // parts)
    for start in range(0, len(steps), each):
        some = steps[start : start + each]
        ranks = sorted({row.rank for row in rows})
        made = [Batch(s, r, {}, [row for row in rows if (row.step, row.rank) == (s, r)]) for s in some for r in ranks]
        store.write([batch for batch in made if batch.emitted])


def _numbers(steps: range, targets: int, *, ranks: int = 1, special: bool = False) -> list[Row]:
    """Return a row for each step, rank and target, some of which are not finite if `special` is True."""
    pick = random.Random(targets)
    odd = [math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.0, -0.0]
    return [
        Row(step, rank, hook, f"{MARK}.{place}.weight", "norm",
            pick.choice(odd) if special and pick.random() < 0.4 else pick.gauss(0, 1))
        for step in steps for rank in range(ranks) for hook in ("grads", "other") for place in range(targets)
    ]  # fmt: skip


def _store_lists(folder: Path, width: int) -> None:
    """Write lists of numbers, some of which are not finite."""
    odd = [math.nan, math.inf, -math.inf, 1e308]
    store = th.Store(folder, linger=0)
    for step in range(4):
        lists = [[odd[i % 4] if step == 2 and i % 5 == 0 else float(i % 7) for i in range(width)] for _ in range(3)]
        table = StepTable(
            step, [f"{MARK}.{place}" for place in range(3)], bytearray(b"\1\1\1"),
            partial(_bins, lists), width=width, device=torch.device("cpu"),
        )  # fmt: skip
        store.write([Batch(step, 0, {"lists": table})])


def _bins(lists: list[list[float]]) -> dict[str, torch.Tensor]:
    """Return lists under the name of a histogram."""
    return {"bins": torch.tensor(lists, dtype=torch.float64)}


def write_runs(folder: Path) -> None:
    """Write all runs but the growing one."""
    histograms = th.Plan(
        [
            th.Hook("grads", on="**", at="grad_final", do=th.stats()),
            th.Hook("bins", on="**", at="grad_final", do=th.histogram()),
        ]
    )
    _train(folder / "histograms", 1, histograms)
    for name, seed in (("diff one", 1), ("diff two", 2), ("diff same", 1)):
        _train(folder / name, seed, diff_plan(3))
    _store(folder / "ordinary", _numbers(range(40), 9))
    _store(folder / "not finite", _numbers(range(30), 5, special=True))
    _store(folder / "ranks", _numbers(range(12), 4, ranks=3))
    for name in ("far steps", "far steps as well"):
        _store(folder / name, _numbers(range(-5, 2**52, 2**49), 3) + _numbers(range(2**52, 2**52 + 5), 3))
    _store(folder / "many targets", _numbers(range(3), MANY))
    _store(folder / "odd targets", [
        Row(step, 0, hook, target, name, float(step)) for step in range(5)
        for hook, name in (("h&h=%41", "n\0\n"), ("", ""))
        for target in (".", "", "a b+c%20&d=e", "ü🏃\u202e", "'\"\\", "t" * 3000)
    ])  # fmt: skip
    _store_lists(folder / "long lists", 1500)
    _store_lists(folder / "short lists", 64)
    for name in ODD_NAMES:
        _store(folder / name, _numbers(range(3), 2), parts=1)
    for name in DAMAGED:
        _store(folder / name, _numbers(range(6), 3))
    for part in (folder / DAMAGED[0]).glob("part-*"):
        part.write_bytes(b"PAR1" + b"\0" * 100)
    for part in (folder / DAMAGED[1]).glob("part-*"):
        data = bytearray(part.read_bytes())
        data[20:90] = bytes(255 - byte for byte in data[20:90])
        part.write_bytes(data)
    (folder / DAMAGED[2] / "ledger.json").write_text('{"version": 99, "entries": [[[')
    (folder / DAMAGED[2] / "model.json").write_bytes(b"\xff\xfe\0")
    _store(folder / LIVE, _numbers(range(3), 4), parts=1)


class Writer:
    """Writes the growing run on a thread, and merges, resumes and repeats some of its steps."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / LIVE
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write)
        #: what went wrong on the thread
        self.failed: Exception | None = None

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write nothing more."""
        self._ended.set()
        self._thread.join()

    def _write(self) -> None:
        try:
            step, attempt = 3, 0
            while not self._ended.is_set():
                store = th.Store(self._folder, linger=0)
                for _ in range(20):
                    rows = _numbers(range(step, step + 1), 4 + min(attempt, 40))
                    store.write([Batch(step, 0, {}, rows)])
                    step += 1
                    if self._ended.wait(0.3):
                        break
                store.close()
                step, attempt = step - 3, attempt + 1
        except Exception as error:
            self.failed = error


def digest(folder: Path) -> dict[str, str]:
    """Return a digest of each file that must not change, with the time of its last change."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if LIVE not in path.relative_to(folder).parts:
            about = path.lstat()
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            found[str(path)] = f"{about.st_mode} {about.st_mtime_ns} {content}"
    return found
