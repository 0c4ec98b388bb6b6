"""Run the planted scripts under `tenterhook run` and compare the first verdict with the key.

`python score.py [--half open|hidden] [--only TEXT] [--seed N] [--processes N] [--show]`; the tool must be importable
(PYTHONPATH). For the hidden half only totals are printed, and they are added to hidden_scores.jsonl. Another seed
plants the faults of the open half at other steps and layers.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from corpus import HERE, SEED, make, script
from truth import match

PARTS = ("kind", "layer", "step", "both")


def execute(command: list[str], entry: dict[str, Any], timeout: float) -> tuple[str, int]:
    """Run a script and return its standard output and exit code."""
    env = {**os.environ, "FAULT": json.dumps(entry["fault"]), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return "", -1
    return done.stdout, done.returncode


def baseline(entry: dict[str, Any], again: bool = False) -> tuple[str, int]:
    """Return output and exit code of the script without the tool; kept in a file, which may be out of date."""
    path = HERE / "baseline" / f"{entry['id']}.json"
    if path.exists() and not again:
        known = json.loads(path.read_text())
        if known["fault"] == entry["fault"]:
            return known["stdout"], known["code"]
    stdout, code = execute([sys.executable, str(script(entry))], entry, 600)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"fault": entry["fault"], "stdout": stdout, "code": code}))
    return stdout, code


def judge(verdict: dict[str, Any] | None, expected: list[dict[str, Any]]) -> dict[str, bool]:
    """Return which parts of the first verdict are right. What is not scored counts as right if the kind is right."""
    if not expected or verdict is None:
        return dict.fromkeys(PARTS, not expected and verdict is None)
    best = dict.fromkeys(PARTS, False)
    for want in expected:
        if want["code"] != verdict["code"]:
            continue
        step, target = verdict.get("step"), verdict.get("target") or ""
        layer = match(target, want["targets"])
        when = want["step"] is None or (step is not None and want["step"][0] <= step <= want["step"][1])
        result = {"kind": True, "layer": layer, "step": when, "both": layer and when}
        best = max(best, result, key=lambda r: sum(r.values()))
    return best


def evaluate(entry: dict[str, Any]) -> dict[str, Any]:
    """Run one entry and judge it."""
    wanted = baseline(entry)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [sys.executable, "-m", "tenterhook", "run", "--quiet", "--json", str(out)]
        command += ["--out", str(Path(folder) / "run"), str(script(entry))]
        got = execute(command, entry, 900)
        report = json.loads(out.read_text()) if out.exists() else None
    failed = report is None or (got != wanted and got != baseline(entry, again=True))
    verdict = report["verdict"] if report else None
    right = dict.fromkeys(PARTS, False) if failed else judge(verdict, entry["expected"])
    note = ""
    if failed:
        note = f"no report, exit code {got[1]}" if report is None else "output or exit code differs from the plain run"
    return {**entry, "right": right, "verdict": verdict, "note": note}


def line(title: str, results: list[dict[str, Any]]) -> str:
    """Return one line of the table."""
    shares = [100 * sum(r["right"][part] for r in results) / len(results) for part in PARTS]
    return f"{title:18}{len(results):5}" + "".join(f"{share:8.1f}" for share in shares)


def table(results: list[dict[str, Any]]) -> str:
    """Return the table of all totals."""
    faults = [r for r in results if r["expected"]]
    lines = [f"{'':18}{'runs':>5}" + "".join(f"{part + ' %':>8}" for part in PARTS)]
    groups: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("code", lambda r: r["expected"][0]["code"]),
        ("kind", lambda r: r["kind"]),
        ("family", lambda r: r["family"]),
    ]
    if faults:
        lines.append(line("all faults", faults))
    healthy = [r for r in results if not r["expected"]]
    if healthy:
        lines.append(line("healthy (silent)", healthy))
    for title, key in groups:
        lines.append(f"by {title}")
        names = sorted({key(r) for r in faults})
        lines.extend([line("  " + name, [r for r in faults if key(r) == name]) for name in names])
    return "\n".join(lines)


def miss(result: dict[str, Any]) -> str:
    """Return a description of one miss."""
    verdict = result["verdict"]
    got = "no verdict"
    if verdict:
        got = f"{verdict['code']} step {verdict.get('step')} target {verdict.get('target')!r}: {verdict['sentence']}"
    want = " or ".join(f"{w['code']} step {w['step']} {w['targets']}" for w in result["expected"]) or "no verdict"
    return f"{result['id']} {result['fault']}\n    expected {want}\n    got {result['note']} {got}"


def commit() -> str:
    """Return the commit of the tool."""
    folder = os.environ.get("TENTERHOOK_REPO", ".")
    done = subprocess.run(["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def remember(results: list[dict[str, Any]]) -> None:
    """Add the totals of the hidden half to the list."""
    faults = [r for r in results if r["expected"]]
    healthy = [r for r in results if not r["expected"]]
    record: dict[str, Any] = {"date": datetime.datetime.now(datetime.UTC).isoformat(), "commit": commit()}
    record |= {"faults": len(faults), **{part: sum(r["right"][part] for r in faults) for part in PARTS}}
    record |= {"healthy": len(healthy), "silent": sum(r["right"]["kind"] for r in healthy)}
    with open(HERE / "hidden_scores.jsonl", "a") as file:
        file.write(json.dumps(record) + "\n")


def main() -> None:
    """Run the entries that the command line selects and print the totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=("open", "hidden"), default="open")
    parser.add_argument("--only", default="", help="only entries whose id contains this text (open half)")
    parser.add_argument("--seed", type=int, default=SEED, help="plant the faults elsewhere (open half)")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="print each miss (open half)")
    options = parser.parse_args()
    if options.half == "hidden" and (options.only or options.show or options.seed != SEED):
        parser.error("the hidden half is run as a whole, and only its totals are shown")
    chosen = {e["id"] for e in make() if e["half"] == options.half and options.only in e["id"]}
    entries = [e for e in make(options.seed) if e["id"] in chosen]
    if not entries:
        parser.error("no entry matches")
    results = []
    with ThreadPoolExecutor(options.processes) as pool:
        for result in pool.map(evaluate, entries):
            results.append(result)
            if options.show and not result["right"]["both"]:
                print(miss(result), flush=True)
    if options.half == "hidden":
        faults = [r for r in results if r["expected"]]
        print(line("hidden, faults", faults))
        print(line("hidden, healthy", [r for r in results if not r["expected"]]))
        remember(results)
    else:
        print(table(results))


if __name__ == "__main__":
    main()
