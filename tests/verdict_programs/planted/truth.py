"""Check the key: run each planted script under plain PyTorch hooks and see whether the key is true.

`python truth.py [--only TEXT] [--processes N] [--again]` writes truth.jsonl and the output of each script
(baseline/ID.json), with which score.py compares the output under the tool.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from corpus import HERE, make, script

Facts = dict[str, Any]


def match(name: str, targets: list[str] | None) -> bool:
    """Return True if a name is one of the targets."""
    return targets is None or any(fnmatch.fnmatchcase(name, t) for t in targets)


def leaps(losses: list[float], step: int, width: int) -> bool:
    """Return True if the loss, within `width` steps, is clearly above what it was before."""
    before = losses[max(0, step - 15) : step]
    after = losses[step : step + width]
    if any(not math.isfinite(v) for v in after):
        return True
    limit = max(1.3 * statistics.mean(before), statistics.mean(before) + 5 * statistics.pstdev(before))
    return max(after, default=0.0) > limit


def first_bad(facts: Facts, want: dict[str, Any]) -> str:
    """Check for TH801 to TH803 that the first non-finite value is where the key says."""
    events = facts["events"]
    if not events:
        return "nothing became non-finite"
    if events[0]["step"] != want["step"][0]:
        return f"step {events[0]['step']}"
    kind = {"TH802": "data", "TH803": "loss"}.get(want["code"])
    if kind:
        return "" if events[0]["what"] == kind else f"first is {events[0]}"
    places = set()
    for event in events if events[0]["what"].startswith("backward") else events[:1]:
        places.add(event["name"].rpartition(".")[0] if event["what"] == "backward out" else event["name"])
    return "" if any(match(p, want["targets"]) for p in places) else f"first at {events[0]}"


def rows_of(facts: Facts, want: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the updates of the optimizer that the key is about."""
    runs = facts["runs"]
    for run in runs:
        if want["targets"] and any(match(n, want["targets"]) for n in run["rows"][0]["grad"]):
            return run["rows"]
    return runs[0]["rows"]


def check(kind: str, want: dict[str, Any], facts: Facts) -> str:
    """Return an empty string if the key is true, otherwise what was found instead."""
    code, rows = want["code"], rows_of(facts, want)
    losses = [r["loss"] for r in rows]
    step = want["step"][-1] if want["step"] else 0
    if code in ("TH801", "TH802", "TH803"):
        return first_bad(facts, want)
    if kind == "lr_nan":
        return (
            "" if any(not math.isfinite(r["lr"]) for r in rows[step : step + 1]) and rows[step]["bad"] else "no effect"
        )
    if kind == "param_nan":
        changed = next((run["changed"].get(str(step), []) for run in facts["runs"] if run["rows"] is rows), [])
        return "" if any(match(n, want["targets"]) for n in changed) else f"changed {changed[:3]}"
    if code == "TH804":
        earlier = any(r["bad"] for r in rows[:step])
        return "" if not earlier and any(match(n, want["targets"]) for n in rows[step]["bad"]) else "not the optimizer"
    if code == "TH805":
        jump = rows[step]["lr"] / rows[step - 1]["lr"]
        broke = leaps(losses, step + 1, 15) or facts["skips"].count(step + 1) >= 8
        return "" if jump >= 10 and broke else f"jump {jump:.1f}, loss {losses[step : step + 3]}"
    if code == "TH806":
        peak = max((v if math.isfinite(v) else math.inf for v in losses), default=0.0)
        good = peak > 4 * losses[0] and (peak > 20 * losses[0] or not losses[-1] < losses[0])
        return "" if good else f"peak {peak:.3f} start {losses[0]:.3f}"
    if code == "TH807":
        changed = next(run["changed"].get(str(step), []) for run in facts["runs"] if run["rows"] is rows)
        good = changed and all(match(n, want["targets"]) for n in changed) and leaps(losses, step, 3)
        return "" if good else f"changed {changed[:3]}, loss {losses[step - 2 : step + 3]}"
    if code == "TH808":
        return "" if leaps(losses, step, 1) else f"loss {losses[step - 3 : step + 3]}"
    if code == "TH809":
        ratio = min(r["norm"] for r in rows) / rows[0]["norm"]
        return "" if ratio < 0.4 else f"norm falls to {ratio:.2f}"
    if code == "TH814":
        return "" if min(facts["clips"]) > 5 else f"smallest ratio {min(facts['clips']):.2f}"
    if code == "TH815":
        start, end = statistics.mean(losses[:5]), statistics.mean(losses[-10:])
        stands = bool(facts["still"]) and set(rows[0]["grad"]) - set(facts["still"]) <= {f"?{i}" for i in range(999)}
        return "" if stands or end > 0.85 * start else f"loss {start:.3f} to {end:.3f}"
    if code == "TH816":
        count = facts["skips"].count(step)
        return "" if count >= 8 and min(facts["skips"]) == step else f"skipped {count}, first {facts['skips'][:1]}"
    if code == "TH817":
        usual = statistics.median(r["update"] for r in rows[step - 10 : step])
        good = rows[step]["update"] > 8 * usual and leaps(losses, step + 1, 10)
        return "" if good else f"update {rows[step]['update'] / usual:.1f} times, loss {losses[step - 1 : step + 4]}"
    return check_gradients(kind, want, facts, rows)


def check_gradients(kind: str, want: dict[str, Any], facts: Facts, rows: list[dict[str, Any]]) -> str:
    """Check the codes that are about gradients of single parameters."""
    code, step = want["code"], want["step"][0] if want["step"] else 0
    names = [n for n in rows[0]["grad"] if match(n, want["targets"])]
    if code == "TH813":
        still = [n for n in facts["still"] if match(n, want["targets"])]
        return "" if still else "all parameters changed"
    if code == "TH810" and kind == "sigmoid_stack":
        weights = [n for n in rows[0]["grad"] if n.endswith("weight")]
        ratio = statistics.median(r["grad"][weights[0]] / (r["grad"][weights[-1]] or 1e-30) for r in rows)
        return "" if ratio < 1e-2 else f"first/last {ratio:.1e}"
    if code == "TH810":
        after = [n for n in rows[0]["grad"] if n not in names][-1]
        ratio = statistics.median(max(r["grad"][n] for n in names) / r["grad"][after] for r in rows)
        return "" if ratio < 1e-3 else f"ratio {ratio:.1e}"
    values = [[r["grad"][n] for r in rows[step:]] for n in names]
    if code == "TH811":
        good = any(all(v == 0 for v in series) for series in values)
        good = good and (step == 0 or all(rows[step - 1]["grad"][n] != 0 for n in names))
        return "" if good else f"gradients {[s[:3] for s in values[:2]]}"
    if code == "TH812":
        good = bool(values) and all(v is None for series in values for v in series)
        good = good and (step == 0 or all(rows[step - 1]["grad"][n] is not None for n in names))
        return "" if good else f"gradients {[s[:3] for s in values[:2]]}"
    usual = {n: statistics.median(r["grad"][n] for r in rows[step - 10 : step]) for n in names}
    best = max(rows[step]["grad"][n] / (usual[n] or 1e-30) for n in names)
    clips = facts["clips"] or [1.0] * len(rows)
    before_clip = clips[step] / statistics.median(clips[step - 10 : step])
    return (
        ""
        if (best > 300 or (best > 3 and before_clip > 100)) and not leaps([r["loss"] for r in rows], step, 1)
        else f"gradient {best:.1f} times"
    )


def healthy(facts: Facts) -> str:
    """Check that in a healthy run everything is finite and the loss of a single model falls."""
    losses = [r["loss"] for r in facts["runs"][0]["rows"]]
    if facts["events"] or facts["skips"]:
        return f"events {facts['events'][:1]} skips {facts['skips'][:3]}"
    falls = len(facts["runs"]) > 1 or statistics.mean(losses[-10:]) < 0.6 * statistics.mean(losses[:3])
    return "" if falls else f"loss {losses[0]:.3f} to {losses[-1]:.3f}"


def verify(entry: dict[str, Any]) -> dict[str, Any]:
    """Run one entry under the probe."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "facts.json"
        env = {**os.environ, "FAULT": json.dumps(entry["fault"]), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(HERE / "probe.py"), str(script(entry)), str(out)]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        if not out.exists():
            return {"id": entry["id"], "ok": False, "note": done.stderr[-300:]}
        facts = json.loads(out.read_text())
    baseline = HERE / "baseline" / f"{entry['id']}.json"
    baseline.parent.mkdir(exist_ok=True)
    baseline.write_text(json.dumps({"fault": entry["fault"], "stdout": done.stdout, "code": done.returncode}))
    note = check(entry["kind"], entry["expected"][0], facts) if entry["expected"] else healthy(facts)
    return {"id": entry["id"], "ok": not note, "note": note, "fault": entry["fault"]}


def main() -> None:
    """Verify and print what is not true."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="only entries whose id contains this text")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="also those that were verified before")
    options = parser.parse_args()
    path = HERE / "truth.jsonl"
    known = {r["id"]: r for line in path.read_text().splitlines() for r in [json.loads(line)]} if path.exists() else {}
    entries = make()
    known = {e["id"]: known[e["id"]] for e in entries if e["id"] in known}
    todo = [e for e in entries if options.only in e["id"]]
    if not options.again:
        todo = [e for e in todo if not (known.get(e["id"], {}).get("ok") and known[e["id"]]["fault"] == e["fault"])]
    with ThreadPoolExecutor(options.processes) as pool:
        for result in pool.map(verify, todo):
            known[result["id"]] = result
            if not result["ok"]:
                print(result["id"], result["note"], flush=True)
            path.write_text("".join(json.dumps(r) + "\n" for r in known.values()))
    print(f"{sum(r['ok'] for r in known.values())} of {len(known)} are true")


if __name__ == "__main__":
    main()
