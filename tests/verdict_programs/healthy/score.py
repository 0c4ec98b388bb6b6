"""Run every healthy training with and without the tool, and report verdicts and differences.

Every script below scripts/ trains well (it exits with an error if it does not), so each verdict is a false alarm.
Results of runs without the tool are kept in DIR/bare and used again as long as the script is unchanged.

    python score.py [--only TEXT] [--processes N] [--show] [--bare-only] [--dir DIR]
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent / "scripts"


def execute(command, folder, timeout):
    """Run a command in a folder; return exit code, stdout, stderr and seconds."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "TOKENIZERS_PARALLELISM": "false"}
    began = time.monotonic()
    try:
        options = {"cwd": folder, "env": environment, "timeout": timeout, "capture_output": True, "text": True}
        done = subprocess.run(command, check=False, **options)
        code, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        code, out, err = "timeout", "", f"no end within {timeout} s"
    return {"code": code, "stdout": out, "stderr": err, "seconds": round(time.monotonic() - began, 1)}


def run_bare(script, root, timeout):
    """Run a script without the tool, or return the stored result of the same script."""
    key = hashlib.sha256(script.read_bytes()).hexdigest()
    store = root / "bare" / f"{script.stem}.json"
    if store.exists():
        result = json.loads(store.read_text())
        if result["key"] == key:
            return result
    folder = root / "bare" / script.stem
    folder.mkdir(parents=True, exist_ok=True)
    result = execute([sys.executable, str(script)], folder, timeout)
    store.write_text(json.dumps({**result, "key": key}))
    return result


def run_tool(script, root, timeout):
    """Run a script under the tool; return the result and what the tool wrote."""
    folder = root / "tool" / script.stem
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    target = folder / "out.json"
    command = [sys.executable, "-m", "tenterhook", "run", "--quiet", "--json", str(target)]
    result = execute([*command, "--out", str(folder / "run"), str(script)], folder, timeout)
    (folder / "stdout.txt").write_text(result["stdout"])
    (folder / "stderr.txt").write_text(result["stderr"])
    try:
        report = json.loads(target.read_text())
    except (OSError, ValueError) as error:
        report = None
        result["stderr"] += f"\nno report: {error}"
    return result, report


def score(script, root, arguments):
    """Return everything there is to say about one script."""
    bare = run_bare(script, root, arguments.timeout)
    row = {"name": script.stem, "bare": bare, "tool": None, "report": None}
    if not arguments.bare_only:
        row["tool"], row["report"] = run_tool(script, root, arguments.timeout)
    return row


def differences(row):
    """Return in which respects the run with the tool is different from the run without it."""
    bare, tool = row["bare"], row["tool"]
    found = [name for name in ("code", "stdout") if bare[name] != tool[name]]
    if row["report"] is None:
        found.append("no report")
    return found


def show(row, verbose):
    """Print the line and the verdicts of one script; return its verdicts."""
    last = (row["bare"]["stdout"].strip().splitlines() or [""])[-2:]
    if row["tool"] is None:
        print(
            f"{row['name']:28} exit {row['bare']['code']} {row['bare']['seconds']:5.1f} s  {last[0][:100]}", flush=True
        )
        if row["bare"]["code"] != 0:
            print("    " + row["bare"]["stderr"].strip()[-300:].replace("\n", "\n    "))
        return []
    models = (row["report"] or {}).get("models") or []
    steps = "+".join(str(model["steps"]) for model in models) or "-"
    different = differences(row)
    same = "same" if not different else "DIFFERENT: " + ", ".join(different)
    times = f"{row['bare']['seconds']:.0f}/{row['tool']['seconds']:.0f} s"
    healthy = "" if row["bare"]["code"] == 0 else "  NOT HEALTHY"
    print(f"{row['name']:28} steps {steps:12} {times:10} {same}{healthy}", flush=True)
    verdicts = [(model["name"], verdict) for model in models for verdict in model["verdicts"]]
    for name, v in verdicts:
        print(f"    {v['code']} {v['severity']} step {v['step']} {name}:{v['target']!r}: {v['sentence']}", flush=True)
        if verbose:
            print(f"        evidence {v.get('evidence')}")
    if row["report"] and row["report"].get("verdict") and not verdicts:
        verdicts = [("", row["report"]["verdict"])]
        print(f"    only at the top: {row['report']['verdict']}")
    if verbose:
        for line in last:
            print(f"        {line}")
    if different or verbose:
        new = [line for line in row["tool"]["stderr"].splitlines() if line not in row["bare"]["stderr"].splitlines()]
        for line in new[-12:]:
            print(f"        stderr: {line[:200]}")
    return [v for _, v in verdicts]


def main():
    """Evaluate all scripts and print the totals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="run only scripts whose name contains this text")
    parser.add_argument("--processes", type=int, default=1, help="scripts at a time")
    parser.add_argument("--show", action="store_true", help="print evidence, last output and new lines of stderr")
    parser.add_argument("--bare-only", action="store_true", help="only check that the scripts train well")
    parser.add_argument("--dir", default="/tmp/healthy_runs", help="folder for results")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds allowed for one run")
    arguments = parser.parse_args()
    root = Path(arguments.dir).resolve()
    (root / "bare").mkdir(parents=True, exist_ok=True)
    scripts = [s for s in sorted(SCRIPTS.glob("*.py")) if arguments.only in s.stem]
    by_severity, by_code = Counter(), Counter()
    different = unhealthy = flagged = 0
    with ThreadPoolExecutor(arguments.processes) as pool:
        for row in pool.map(lambda script: score(script, root, arguments), scripts):
            verdicts = show(row, arguments.show)
            unhealthy += row["bare"]["code"] != 0
            different += row["tool"] is not None and bool(differences(row))
            flagged += bool(verdicts)
            by_severity.update({v["severity"] for v in verdicts})
            by_code.update({v["code"] for v in verdicts})
    print(f"\nprograms {len(scripts)}, not healthy without the tool {unhealthy}")
    if not arguments.bare_only:
        print(f"programs with a verdict {flagged}; by severity {dict(by_severity)}; by code {dict(by_code)}")
        print(f"programs that differ from the run without the tool {different}")
    return 1 if unhealthy or different or flagged else 0


if __name__ == "__main__":
    sys.exit(main())
