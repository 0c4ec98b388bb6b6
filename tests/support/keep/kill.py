"""Kill a training process at random moments and restart it. The result must equal that of an undisturbed run."""

from __future__ import annotations

import itertools
import mmap
import os
import random
import shutil
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.keep.containers import CONTAINERS, WAYS, resume
from tests.support.keep.resume import undisturbed
from tests.support.keep.training import Run

#: what a child is doing; it writes the number into memory that it shares with the parent
DOING = ("starting", "training", "writing")
_doing = mmap.mmap(-1, 1)


# -- the child ---------------------------------------------------------------------------------------------------------


def train(folder: Path, steps: int, container: str, way: str) -> None:
    """Train from the newest checkpoint to the end with a checkpoint at every step, then write the digest."""
    found = sorted(folder.glob("step*"))
    if found:
        run = resume(found[-1], container, way)
    else:
        run = Run()
        run.attach()
    while run.step < steps:
        _doing[0] = DOING.index("training")
        run.advance_step()
        _doing[0] = DOING.index("writing")
        _commit(folder, f"step{run.step:03}", lambda path: CONTAINERS[container].save(run, path))
        for old in sorted(folder.glob("step*"))[:-1]:
            _remove(old)
    _commit(folder, "digest", lambda path: path.write_text(run.digest()))


def _commit(folder: Path, name: str, write: Callable[[Path], object]) -> None:
    """Write a file or folder atomically: write it under another name, sync it to disk, then rename it."""
    unfinished = folder / "unfinished"
    _remove(unfinished)
    write(unfinished)
    for path in (*unfinished.rglob("*"), unfinished):
        _sync(path)
    os.rename(unfinished, folder / name)
    _sync(folder)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# -- the parent: it has imported everything but run no step, so that a fork starts fast and clean ----------------------


@dataclass
class Outcome:
    runs: int = 0
    #: number of children that were killed, by what they were doing
    kills: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        where = ", ".join(f"{self.kills[doing]} {doing}" for doing in DOING)
        return f"{self.kills.total()} kills ({where}) in {self.runs} runs, {len(self.wrong)} differences"


def harass(kills: int, *, steps: int = 40, seed: int = 0) -> Iterator[Outcome]:
    """Run trainings of `steps` steps until `kills` children were killed; yield the outcome so far after each run."""
    _warm_up()
    chance, outcome = random.Random(seed), Outcome()
    began = time.monotonic()
    expected = _reference(steps)
    # A run is killed about ten times. Now and then a child runs for long, so that every run ends.
    patience = (time.monotonic() - began) / 10
    while outcome.kills.total() < kills:
        container = list(CONTAINERS)[outcome.runs % len(CONTAINERS)]
        outcome.runs += 1
        with TemporaryDirectory() as folder:
            ended, ways = None, itertools.cycle(WAYS)
            while ended is None:
                spared = outcome.kills.total() >= kills
                after = None if spared else chance.expovariate(1 / patience)
                ended = _attempt(Path(folder), after, steps, container, next(ways))
                if ended is None:
                    outcome.kills[DOING[_doing[0]]] += 1
            if ended != expected:
                outcome.wrong.append(f"run {outcome.runs}, {container}: {ended}")
        yield outcome


def _warm_up() -> None:
    """Import every module now that would otherwise be imported later."""
    run = Run()
    run.attach()
    with TemporaryDirectory() as folder:
        for name, container in CONTAINERS.items():
            container.save(run, Path(folder, name))
            resume(Path(folder, name), name, "restore").rig.detach()
    run.rig.detach()


def _attempt(folder: Path, after: float | None, steps: int, container: str, way: str) -> str | None:
    """Start a child, kill it after some seconds, and return how it ended; None if it was killed."""
    _doing[0] = DOING.index("starting")
    child = _fork(lambda: train(folder, steps, container, way), folder)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)  # the parent has not waited yet, so the id still belongs to the child
    return _ended(child, folder)


def _reference(steps: int) -> str:
    with TemporaryDirectory() as folder:
        digest = Path(folder, "digest")
        found = _ended(_fork(lambda: digest.write_text(undisturbed(steps)), Path(folder)), Path(folder))
    assert found is not None and len(found) == 64, found
    return found


def _fork(work: Callable[[], object], folder: Path) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        (folder / "error").write_text(traceback.format_exc())
    finally:
        os._exit(code)


def _ended(child: int, folder: Path) -> str | None:
    """Return the digest that a child wrote, or its error; None if it was killed."""
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return None
    name = "digest" if status == 0 else "error"
    return (folder / name).read_text() if (folder / name).exists() else f"ended with status {status}"
