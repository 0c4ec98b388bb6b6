"""Pass every hostile artefact to every reader that accepts its form, under the guard."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import tenterhook as th
from tests.support.keep.entry_points import CARRIERS, FORMS, READERS, Victim
from tests.support.keep.forger import HEADER, honest
from tests.support.keep.guard import MEMORY, SECONDS, Guard, Outcome, faults
from tests.support.keep.hostile_plans import CANARY, Artefact, plans
from tests.support.keep.hostile_states import states

#: how often a call is repeated if it was too slow or used too much memory, since the machine may be busy
TRIES = 3


def artefacts() -> list[Artefact]:
    return [*plans(), *states()]


@dataclass(frozen=True)
class Case:
    artefact: Artefact
    form: str
    carrier: str
    readers: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.artefact.name} by {self.carrier}"


def cases() -> Iterator[Case]:
    """Yield each artefact with each of its forms and carriers."""
    for artefact in artefacts():
        for form in artefact.forms:
            for carrier, readers in FORMS[form].items():
                yield Case(artefact, form, carrier, readers)


def slice_of_cases() -> Iterator[Case]:
    """Yield a small sample: one in seven artefacts that are not heavy, each with one carrier and one reader."""
    found: dict[str, list[Case]] = {}
    for case in cases():
        if not case.artefact.heavy:
            found.setdefault(case.artefact.name, []).append(case)
    for i, each in enumerate(list(found.values())[::7]):
        quick = [case for case in each if case.carrier != "DCP" or i % 10 == 0]
        case = quick[i % len(quick)]
        yield Case(case.artefact, case.form, case.carrier, (case.readers[i // 2 % len(case.readers)],))


@dataclass(frozen=True)
class Verdict:
    """Describe, as JSON, what one reader did with one artefact."""

    artefact: str
    carrier: str
    reader: str
    #: empty if the reader refused the artefact correctly
    faults: tuple[str, ...] = ()
    error: str = ""
    said: str = ""
    seconds: float = 0.0
    memory: int = 0
    #: why the container did not accept the artefact
    undelivered: str = ""


class Trial:
    """Run cases. Create only one trial in a process; it uses its own directory."""

    def __init__(self, place: Path) -> None:
        self._place, self._marker, self._work = place, place / "ran", place / "work"
        canary = place / "canary"
        canary.mkdir()
        (canary / f"{CANARY}.py").write_text(f"open({str(self._marker)!r}, 'w').close()\ndef boom(*_): pass\n")
        sys.path.insert(0, str(canary))
        self._work.mkdir()
        os.chdir(self._work)
        self._victim = Victim()
        self._warm()
        self._guard = Guard()

    def _warm(self) -> None:
        """Use everything once, so that the cost of a first use is not attributed to an artefact."""
        for state in (honest(), {**honest(), HEADER: honest()[HEADER][:-1]}, {}, honest(steps=4), honest(width=3)):
            for read in (self._victim.restore, self._victim.load_state):
                with contextlib.suppress(th.TenterhookError), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    read(state)
            self._victim.leave()
        for read, text in ((self._victim.from_json, b"[["), (self._victim.from_toml, b"[["), (self._victim.from_toml,
                           b'tenterhook = 1\n[[hook]]\nid="a"\non="firs"\nat="grad"\ndo="stats"')):  # fmt: skip
            with contextlib.suppress(th.TenterhookError):
                read(text)
        self._victim = Victim()

    def run(self, case: Case) -> Iterator[Verdict]:
        with tempfile.TemporaryDirectory(dir=self._place) as place:
            way = CARRIERS[case.carrier](case.artefact.forms[case.form](), Path(place))
            try:
                call = next(way)
                while True:
                    found = self._watched(call)
                    if found.error is not None:
                        yield self._verdict(case, "DcpState", found, refused=True)
                        return
                    if faults(found) != ["accepted"]:
                        yield self._verdict(case, "DcpState", found, refused=False)
                    call = way.send(found.value)
            except StopIteration as arrived:
                thing = arrived.value
            except BaseException as error:  # the exception of DCP does not derive from Exception
                if isinstance(error, KeyboardInterrupt | AssertionError):
                    raise
                yield Verdict(
                    case.artefact.name, case.carrier, "", undelivered=f"{type(error).__name__}: {error}"[:200]
                )
                return
            for reader in case.readers:
                read = READERS[reader]
                found = self._watched(lambda: read(self._victim, thing), thing if isinstance(thing, Path) else None)
                yield self._verdict(case, reader, found, refused=True)

    def _watched(self, call: Callable[[], Any], reading: Path | None = None) -> Outcome:
        found = self._guard.watch(call, reading=reading)
        for _ in range(TRIES - 1):
            if found.error is None or (found.seconds <= SECONDS and found.memory <= MEMORY):
                break
            again = self._guard.watch(call, reading=reading)
            again.breaches += found.breaches
            again.seconds, again.memory = min(again.seconds, found.seconds), min(again.memory, found.memory)
            found = again
        return found

    def _verdict(self, case: Case, reader: str, found: Outcome, *, refused: bool) -> Verdict:
        said = [fault for fault in faults(found) if refused or fault != "accepted"] + self._traces()
        if said:
            self._victim.leave()
            self._victim = Victim()
        error = type(found.error).__name__ if found.error is not None else ""
        return Verdict(case.artefact.name, case.carrier, reader, tuple(said), error, found.said[:1000],
                       found.seconds, found.memory)  # fmt: skip

    def _traces(self) -> list[str]:
        """List what a refusal left behind, and remove it."""
        said = self._victim.changes()
        if self._marker.exists() or CANARY in sys.modules:
            said.append("the canary was imported")
            sys.modules.pop(CANARY, None)
            self._marker.unlink(missing_ok=True)
        for left in self._work.iterdir():
            said.append(f"the file {left.name} was written")
            left.unlink()
        return said


def main(arguments: list[str]) -> None:
    """Print one verdict per line, as JSON: all, a sample with `--slice`, or those whose name has the given words."""
    torch.set_num_threads(1)
    words = [a for a in arguments if not a.startswith("--")]
    with tempfile.TemporaryDirectory() as place:
        trial = Trial(Path(place))
        for case in slice_of_cases() if "--slice" in arguments else cases():
            if words and not all(word in str(case) for word in words):
                continue
            print(f"... {case}", file=sys.stderr)
            for verdict in trial.run(case):
                print(json.dumps(asdict(verdict)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
