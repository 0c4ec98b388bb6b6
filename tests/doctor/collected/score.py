"""Compare the findings of the doctor with what is really wrong with the collected programs.

The programs were written from public threads, by people who did not know the codes. Beside `NAME.py` are its key
`NAME.json` and the repaired program `NAME.fixed.py`. A key states the cause in words, and lists the codes that name
this cause (`codes`, empty if there is no such code, which counts as a miss) and the lines at which it may be reported.

The hidden half is for scoring only: its totals are printed, and nothing else. Two further sets have no repaired
programs: `variants` were written from the pages of the codes, one for each code, and `threads` from public threads,
without knowledge of the codes.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
#: the sets of which only totals are printed, because rules are written for the others
SECRET = ("hidden",)
#: seconds after which a program is stopped
LIMIT = 240


@dataclass(frozen=True)
class Outcome:
    """Hold what a program printed and how it ended."""

    out: str
    code: int
    #: the last line of standard error, which names the exception
    last: str


@dataclass(frozen=True)
class Result:
    program: Path
    findings: list[dict[str, Any]]
    #: what differs from the run without the doctor
    differences: list[str]
    key: dict[str, Any] | None = None
    #: the processor time with the doctor, divided by the time without
    ratio: float | None = None

    @property
    def codes(self) -> list[str]:
        return [one["code"] for one in self.findings]

    @property
    def first(self) -> bool:
        """Return True if the first finding names the cause."""
        return self.key is not None and bool(self.codes) and self.codes[0] in self.key.get("codes", ())

    @property
    def at_all(self) -> bool:
        return self.key is not None and any(code in self.key.get("codes", ()) for code in self.codes)

    @property
    def place(self) -> bool:
        """Return True if the first finding that names the cause points to a line of the key."""
        mine = [one for one in self.findings if self.key is not None and one["code"] in self.key.get("codes", ())]
        line = re.search(r":(\d+)$", (mine[0].get("place") or "") if mine else "")
        return self.key is not None and line is not None and int(line[1]) in self.key["lines"]

    @property
    def grave(self) -> list[dict[str, Any]]:
        return [one for one in self.findings if one["severity"] != "note"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    halves = ("open", *SECRET, "variants", "threads", "fresh", "recent", "public", "asked", "forums")
    parser.add_argument("--half", choices=halves, default="open")
    parser.add_argument("--show", action="store_true", help="print every miss (not of the hidden half)")
    parser.add_argument(
        "--only", default="", help="only the programs whose names begin with one of these letters or words"
    )
    parser.add_argument("--healthy", action="store_true", help="the healthy and the repaired programs")
    parser.add_argument("--bare", action="store_true", help="also run without the doctor, and compare")
    parser.add_argument("--patches", action="store_true", help="apply each patch, and look for the symptom again")
    parser.add_argument("--forked", action="store_true", help="import the libraries once, and fork for each program")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    show = args.show and args.half not in SECRET
    programs = [
        one for one in sorted((HERE / args.half).glob("*.py")) if one.stem.startswith(tuple(args.only.split(",")))
    ]
    programs = [one for one in programs if args.healthy != _is_faulty(one)]
    start = run_forked if args.forked else run
    if args.forked:
        import_libraries()
    with ThreadPoolExecutor(1 if args.forked else args.processes) as pool:
        results = list(pool.map(lambda one: examine(one, start, bare=args.bare), programs))
    if args.patches:
        return tell_patches(results, start, show=show)
    return tell_healthy(results, show=show) if args.healthy else tell_faulty(results, show=show)


def _is_faulty(program: Path) -> bool:
    return program.with_suffix(".json").exists()


def examine(program: Path, start: Callable[[list[str], str], tuple[Outcome, float]], *, bare: bool) -> Result:
    """Run a program with the doctor."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "findings.json"
        command = [sys.executable, "-m", "tenterhook", "doctor", "--exit-code", "0", "--json", str(out), str(program)]
        seen, seconds = start(command, folder)
        try:
            findings = json.loads(out.read_text())["findings"]
        except (OSError, ValueError):
            findings = [{"code": "none", "severity": "error", "evidence": seen.last, "place": None}]
    differences, ratio = [], None
    if bare:
        with tempfile.TemporaryDirectory() as folder:
            alone, without = start([sys.executable, str(program)], folder)
        ratio = seconds / without
        pairs = zip(("output", "exit code", "exception"), vars(alone).values(), vars(seen).values(), strict=True)
        differences = [what for what, one, other in pairs if one != other]
    key = json.loads(program.with_suffix(".json").read_text()) if _is_faulty(program) else None
    return Result(program, findings, differences, key, ratio)


def run(command: list[str], folder: str) -> tuple[Outcome, float]:
    """Run a command. Return its outcome and the processor time that it used, in seconds."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            command, stdout=out, stderr=err, text=True, cwd=folder, env=environment, stdin=subprocess.DEVNULL
        )
        stop = threading.Timer(LIMIT, process.kill)
        stop.start()
        _, status, used = os.wait4(process.pid, 0)
        stop.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        lines = [line for line in err.read().splitlines() if line.strip()]
        last = lines[-1] if process.returncode and lines else ""
        return Outcome(out.read(), process.returncode, last), used.ru_utime + used.ru_stime


def import_libraries() -> None:
    """Import what most programs import."""
    sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
    os.environ |= {"HF_HUB_OFFLINE": "1"}
    own = ("tenterhook.cli", "tenterhook.doctor", "tenterhook.program")
    for name in ("torch", *own, "transformers", "lightning", "peft"):
        with suppress(ImportError):
            importlib.import_module(name)
    importlib.import_module("torch").set_num_threads(1)


def run_forked(command: list[str], folder: str) -> tuple[Outcome, float]:
    """Run a command as `run` does, in a fork of this process."""
    arguments = command[3:] if command[1] == "-m" else command[1:]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if child == 0:
            os.chdir(folder)
            for one, number in ((os.open(os.devnull, os.O_RDONLY), 0), (out.fileno(), 1), (err.fileno(), 2)):
                os.dup2(one, number)
            signal.alarm(LIMIT)
            code = 1
            try:
                if command[1] == "-m":
                    code = importlib.import_module("tenterhook.cli").main(arguments)
                else:
                    code = importlib.import_module("tenterhook.program").run(arguments[0], [], nullcontext())
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status, used = os.wait4(child, 0)
        out.seek(0)
        err.seek(0)
        code = os.waitstatus_to_exitcode(status)
        lines = [line for line in err.read().splitlines() if line.strip()]
        return Outcome(out.read(), code, lines[-1] if code and lines else ""), used.ru_utime + used.ru_stime


def _line(found: dict[str, Any]) -> str:
    return f"    -> {found['code']} {found['severity']} {found.get('place')}: {found['evidence']}"


def tell_faulty(results: list[Result], *, show: bool) -> int:
    for one in results if show else ():
        if not one.first or one.differences:
            key = one.key or {}
            print(f"{one.program.stem}: {key.get('kind')} {key.get('codes')} lines {key['lines']}\n    {key['cause']}")
            print(*map(_line, one.findings[:4]), sep="\n")
            print(f"    differs in {one.differences}" if one.differences else "", flush=True)
    count = max(len(results), 1)
    with_code = [one for one in results if one.key and one.key.get("codes")]
    print(f"faulty programs {len(results)}; with a code {len(with_code)}")
    for name, right in (("first", "first"), ("at all", "at_all"), ("at all, at the right line", "place")):
        number = sum(getattr(one, right) for one in results)
        print(f"cause named {name}: {number} ({100 * number / count:.1f} %)")
    tell_comparison(results)
    return 0


def tell_patches(results: list[Result], start: Callable[[list[str], str], tuple[Outcome, float]], *, show: bool) -> int:
    """Apply each patch alone, and count the programs that no longer show their symptom and do not fail."""
    patched = [
        (one, found, is_repaired(one, found["patch"], start))
        for one in results
        for found in one.findings
        if found.get("patch") and one.key is not None and one.key.get("symptom")
    ]
    right = [one for one in patched if one[1]["code"] in (one[0].key or {}).get("codes", ())]
    for name, group in (("findings with a patch", patched), ("of these, findings that name the cause", right)):
        repaired = sum(repaired for *_, repaired in group)
        print(f"{name}: {len(group)}; repaired {repaired} ({100 * repaired / max(len(group), 1):.1f} %)")
    for one, found, repaired in patched if show else ():
        if not repaired:
            print(f"{one.program.stem}: {found['code']} {found['evidence']}\n{found['patch']}")
    return 0


def is_repaired(one: Result, patch: str, start: Callable[[list[str], str], tuple[Outcome, float]]) -> bool:
    """Apply a patch to a copy of a program, run it, and return True if it ends well and without its symptom."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / one.program.name
        copy.write_text(one.program.read_text())
        applied = subprocess.run(["patch", "-s", copy], input=patch, text=True, capture_output=True)
        out, _ = start([sys.executable, str(copy)], folder)
    assert one.key is not None
    return applied.returncode == 0 and out.code == 0 and not re.search(one.key["symptom"], out.out)


def tell_healthy(results: list[Result], *, show: bool) -> int:
    for one in results if show else ():
        if one.grave or one.differences:
            print(one.program.stem, f"differs in {one.differences}" if one.differences else "")
            for found in one.grave:
                print(
                    f"    -> {found['code']} {found['severity']} {found.get('place')}: {found['evidence']}", flush=True
                )
    print(f"healthy programs {len(results)}; with errors or warnings {sum(bool(one.grave) for one in results)}")
    tell_comparison(results)
    return int(any(one.grave for one in results))


def tell_comparison(results: list[Result]) -> None:
    """Print how the runs with the doctor differ from those without it, if there were any."""
    ratios = [one.ratio for one in results if one.ratio is not None]
    if ratios:
        print(f"programs that differ from the run without the doctor: {sum(bool(one.differences) for one in results)}")
        print(f"processor time, compared with the run without the doctor: {statistics.median(ratios):.2f} (median)")


if __name__ == "__main__":
    sys.exit(main())
