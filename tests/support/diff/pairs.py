"""Record pairs of runs with a known first difference, compare them, and count how often the answer is right."""

from __future__ import annotations

import argparse
import functools
import subprocess
import tempfile
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tenterhook import diff
from tenterhook.errors import StoreError
from tests.support.warm_python import RANKS, warm_python

CORPUS = Path(__file__).resolve().parents[2] / "diff" / "corpus"
#: number of steps that are recorded with digests
STEPS = 40
#: what every program of the corpus imports
PRELOADED = (*RANKS, "tenterhook.adapters.auto_attach", "tenterhook.cli", "duckdb", "pyarrow.parquet")
Run = tuple[str, tuple[str, ...], int, bool]


def all_pairs() -> list[dict[str, Any]]:
    """Return the pairs of the corpus."""
    pairs: list[dict[str, Any]] = tomllib.loads((CORPUS / "pairs.toml").read_text())["pair"]
    return pairs


def runs_of(pair: dict[str, Any], *, perturbed: bool = False) -> list[Run]:
    """Return the runs of a pair: the program, its arguments, the number of processes, and whether it is perturbed."""
    runs = [
        (pair.get(f"{which}_program", pair["program"]), tuple(pair[which]), ranks, False)
        for which, ranks in zip(("first", "second"), pair["ranks"], strict=True)
    ]
    return [*runs, (*runs[0][:3], True)] if perturbed else runs


@functools.cache
def _python() -> str:
    return warm_python(*PRELOADED)


def record(run: Run, folder: Path) -> str:
    """Record a run. Return its errors, or an empty text."""
    program, arguments, ranks, perturbed = run
    python = _python()
    start = [python] if ranks == 1 else [
        python, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--master-port=0",
        "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0",
    ]  # fmt: skip
    ours = ["-m", "tenterhook", "run", "--quiet", "--for-diff", str(STEPS), "--out", str(folder)]
    more = ["--perturb"] if perturbed else []
    command = [*start, *ours, *more, str(CORPUS / program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=CORPUS)
    if done.returncode == 0:
        (folder / "done").touch()
        return ""
    return f"{' '.join(command)}\n{done.stderr[-2000:]}"


def compare(one: Path, other: Path, *perturbed: Path) -> dict[str, Any]:
    """Compare the runs in two folders. Of several models, return the answer with the earliest difference."""
    answers = []
    for model in sorted(path.name for path in one.iterdir() if path.is_dir()):
        try:
            found = diff.compare(one / model, other / model, perturbed=[path / model for path in perturbed])
            answers.append(asdict(found))
        except StoreError as error:
            answers.append({"equal": None, "sentence": str(error)})
    return min(answers, key=lambda answer: (answer["equal"] is not False, answer.get("step") or 0), default={})


def is_right(pair: dict[str, Any], answer: dict[str, Any]) -> bool:
    """Return True if the answer is the one that was planted."""
    if pair["equal"]:
        return answer.get("equal") is True
    kinds = {pair["kind"], *pair.get("also_kind", ())}
    if answer.get("equal") is not False or answer["step"] != pair["step"] or answer["kind"] not in kinds:
        return False
    if answer["kind"] in ("data", "loss", "rate"):
        return True
    # A change of the optimizer or of the seed changes all parameters, and the key names the whole model.
    everything = answer["kind"] in ("weights", "backward", "update") and pair["target"] == "."
    return everything or answer["target"] in {pair["target"], *pair["also"]}


def main(arguments: list[str] | None = None) -> int:
    """Record and compare the pairs, and print the answers that are wrong and the counts."""
    parser = argparse.ArgumentParser(prog="scripts/diff-pairs", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="only the pairs whose names contain this text")
    parser.add_argument("--every", metavar="N", type=int, default=1, help="one pair in N")
    parser.add_argument("--perturbed", action="store_true", help="take tolerances from perturbed runs")
    parser.add_argument("--keep", metavar="DIR", help="keep the runs in this folder, and use those that are there")
    options = parser.parse_args(arguments)
    pairs = [pair for pair in all_pairs() if options.only in pair["name"]][:: options.every]
    with tempfile.TemporaryDirectory() as made:
        return run_pairs(pairs, Path(options.keep or made), perturbed=options.perturbed)


def run_pairs(pairs: list[dict[str, Any]], folder: Path, *, perturbed: bool = False) -> int:
    """Record and compare pairs. Return the number of wrong answers."""
    runs = list(dict.fromkeys(run for pair in pairs for run in runs_of(pair, perturbed=perturbed)))
    runs += runs_again(pairs)
    paths = {run: folder / _name(run) for run in runs}
    missing = [run for run in runs if not (paths[run] / "done").exists()]
    with ThreadPoolExecutor(2) as pool:
        for errors in pool.map(lambda run: record(run, paths[run]), missing):
            if errors:
                print(f"cannot be recorded: {errors}", flush=True)
    answers = [compare(*_paths(pair, paths, perturbed=perturbed)) for pair in pairs]
    counts: Counter[tuple[bool, bool]] = Counter()
    for pair, answer in zip(pairs, answers, strict=True):
        right = is_right(pair, answer)
        counts[pair["equal"], right] += 1
        if not right:
            wanted = "equal" if pair["equal"] else f"step {pair['step']}, {pair['kind']} {pair['target']}"
            print(f"wrong: {pair['name']}: {wanted}\n  {answer.get('sentence')}", flush=True)
    print(
        f"different: {counts[False, True]} of {counts[False, True] + counts[False, False]} right; "
        f"equal: {counts[True, True]} of {counts[True, True] + counts[True, False]} right; {len(runs)} runs"
    )
    return counts[False, False] + counts[True, False]


def runs_again(pairs: list[dict[str, Any]]) -> list[Run]:
    """Return the second run of each pair that repeats the first one: it needs its own folder."""
    return [_again(pair) for pair in pairs if runs_of(pair)[0] == runs_of(pair)[1]]


def _again(pair: dict[str, Any]) -> Run:
    program, arguments, ranks, perturbed = runs_of(pair)[1]
    return f"./{program}", arguments, ranks, perturbed


def _paths(pair: dict[str, Any], paths: dict[Run, Path], *, perturbed: bool) -> list[Path]:
    one, other, *more = runs_of(pair, perturbed=perturbed)
    return [paths[one], paths[_again(pair) if one == other else other], *(paths[run] for run in more)]


def _name(run: Run) -> str:
    program, arguments, ranks, perturbed = run
    again = "again-" if program.startswith("./") else ""
    words = [Path(program).stem, *(word.strip("-") for word in arguments), str(ranks), *(["perturbed"] * perturbed)]
    return again + "-".join(words).replace("/", "_")
