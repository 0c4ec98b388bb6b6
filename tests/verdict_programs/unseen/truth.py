"""Check the key with plain PyTorch hooks, without the tool.

`python truth.py [--only TEXT] [--again] [--check]`: one forked process for each run, with the hooks of probe.py; facts/
keeps what was seen, baseline/ the output, truth.jsonl the result. --check evaluates the kept facts again.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import hashlib
import json
import math
import os
import runpy
import statistics
import sys

from corpus import CODES, HERE, make, script

median = statistics.median


def match(name, targets):
    """Return True if a name is one of the targets."""
    return targets is None or any(fnmatch.fnmatchcase(name, t) for t in targets)


def calm(values):
    """Return a limit that a leap must clearly exceed."""
    mean, spread = statistics.mean(values), statistics.pstdev(values)
    return max(1.4 * mean, mean + 6 * spread, 1.1 * max(values))


def leaps(losses, step, width, back=20):
    """Return True if the loss, within `width` steps, is clearly above what it was before."""
    after = losses[step : step + width]
    return any(not math.isfinite(v) for v in after) or max(after, default=0.0) > calm(
        losses[max(0, step - back) : step]
    )


def rows_of(facts, want):
    for run in facts["runs"]:
        if want["targets"] and any(match(n, want["targets"]) for n in run["rows"][0]["grad"]):
            return run
    return facts["runs"][0]


def first_bad(entry, want, facts):
    events = facts["events"]
    if not events:
        return "nothing became non-finite"
    if events[0]["step"] != want["step"][0]:
        return f"step {events[0]['step']}"
    what = {"TH802": "data", "TH803": "loss"}.get(want["code"])
    if what == "loss" and events[0]["what"] == "forward" and events[0]["name"] in ("", "?"):
        # A loss that is a module, outside of the model, or that the model computes in the root.
        return "" if any(e["what"] == "loss" for e in events) else f"first is {events[0]}"
    if what:
        return "" if events[0]["what"] == what else f"first is {events[0]}"
    backward = entry["kind"].startswith("bwd")
    if events[0]["what"].startswith("backward") != backward:
        return f"first is {events[0]}"
    if not backward:
        return "" if match(events[0]["name"], want["targets"]) else f"first at {events[0]}"
    # The gradient of the module's output is finite, that of its input or of a child's output is not.
    names = {(e["what"], e["name"]) for e in events}
    layer = entry["fault"]["layer"]
    if ("backward out", layer) in names:
        return f"the gradient of the output of {layer} is not finite: {events[:3]}"
    inside = events[0]["name"] == layer or events[0]["name"].startswith(layer + ".")
    return "" if inside else f"first at {events[0]}"


def check(entry, facts):
    """Return an empty string if the key is true, otherwise what was found instead."""
    kind, want = entry["kind"], entry["expected"][0]
    if kind == "fp16_overflow":
        other = first_bad({**entry, "kind": "fwd"}, entry["expected"][1], facts)
        if other:
            return other
    code, run = want["code"], rows_of(facts, want)
    rows, changed = run["rows"], run["changed"]
    losses = [r["loss"] for r in rows]
    step = want["step"][-1] if want["step"] else 0
    if code not in ("TH801", "TH802", "TH803", "TH816") and want["step"] and step:
        early = [e for e in facts["events"] if e["step"] < step]
        if early or any(s < step for s in facts["skips"]):
            return f"not healthy before: {early} {facts['skips'][:2]}"
    if code in ("TH801", "TH802", "TH803"):
        return first_bad(entry, want, facts)
    if kind == "param_nan":
        here = changed.get(str(step), [])
        good = (
            here
            and all(match(n, want["targets"]) for n in here)
            and facts["events"]
            and facts["events"][0]["step"] == step
        )
        return "" if good else f"changed {here[:3]} events {facts['events'][:1]}"
    if code == "TH804":
        if any(r["bad"] for r in rows[:step]) or not rows[step]["bad"]:
            return "not the optimizer"
        if facts["events"] and facts["events"][0]["step"] <= step:
            return f"event before {facts['events'][0]}"
        others = [n for n in rows[step]["bad"] if not match(n, want["targets"])]
        return f"also {others}" if others else ""
    if code == "TH805":
        jump = rows[step]["lr"] / rows[step - 1]["lr"]
        leap = leaps(losses, step + 1, 10) or facts["skips"].count(step + 1) >= 8
        return (
            ""
            if jump >= 10 and leap and not leaps(losses, step, 1)
            else f"jump {jump:.1f}, loss {losses[step - 2 : step + 4]}"
        )
    if code == "TH806":
        values = [v if math.isfinite(v) else math.inf for v in losses]
        early = next((i for i, v in enumerate(values) if v > 3 * values[0]), None)
        bad = next((i for i, v in enumerate(values) if v == math.inf), len(values))
        good = max(values) > 10 * values[0] and values[-1] > 3 * values[0] and early is not None and bad - early >= 3
        if facts["events"] and facts["events"][0]["step"] < 8:
            good = False
        seen = f"x3 at {early} inf at {bad} {facts['events'][:1]}"
        return "" if good else f"start {values[0]:.3f} peak {max(values):.3g} end {values[-1]:.3g} {seen}"
    if code == "TH807":
        here = changed.get(str(step), [])
        good = here and all(match(n, want["targets"]) for n in here) and leaps(losses, step, 2)
        return "" if good else f"changed {here[:3]}, loss {losses[step - 2 : step + 3]}"
    if code == "TH808":
        good = leaps(losses, step, 1, 40) and not changed.get(str(step))
        later = median(losses[-8:])
        back = later < losses[step] / 1.4
        near, limit = [round(v, 3) for v in losses[step - 3 : step + 4]], calm(losses[max(0, step - 40) : step])
        return "" if good and back else f"loss {near} limit {limit:.3f} end {later:.3f}"
    if code == "TH809":
        norms = [r["norm"] for r in rows]
        return "" if min(norms) / norms[0] < 0.4 else f"norm falls to {min(norms) / norms[0]:.2f}"
    if code == "TH814":
        return "" if min(facts["clips"]) > 10 else f"smallest ratio {min(facts['clips']):.2f}"
    if code == "TH815":
        start, end = statistics.mean(losses[:5]), statistics.mean(losses[-10:])
        low = min(statistics.mean(losses[i : i + 10]) for i in range(len(losses) - 9))
        flat = (
            low > 0.88 * start
            and max(statistics.mean(losses[i : i + 10]) for i in range(len(losses) - 9)) < 1.25 * start
        )
        stands = bool(facts["still"])
        want_still = kind in ("lr_zero", "wrong_model")
        return (
            ""
            if (stands or not want_still) and flat
            else f"loss {start:.3f} to {end:.3f}, lowest {low:.3f}, still {len(facts['still'])}"
        )
    if code == "TH816":
        count = facts["skips"].count(step)
        return "" if count >= 20 and min(facts["skips"]) == step else f"skipped {count}, first {facts['skips'][:1]}"
    if code == "TH817":
        usual = median(r["update"] for r in rows[step - 10 : step])
        norms = [math.sqrt(sum((v or 0) ** 2 for v in r["grad"].values())) for r in rows]
        usual_gradient = norms[step] < 4 * median(norms[step - 10 : step])
        good = (
            rows[step]["update"] > 8 * usual
            and leaps(losses, step + 1, 5)
            and usual_gradient
            and not leaps(losses, step, 1)
        )
        return "" if good else f"update {rows[step]['update'] / usual:.1f} times, loss {losses[step - 1 : step + 4]}"
    return check_gradients(entry, kind, want, facts, rows)


def check_gradients(entry, kind, want, facts, rows):
    """Check the codes that are about gradients of single parameters."""
    code, step, layer = want["code"], want["step"][0] if want["step"] else 0, entry["fault"]["layer"]
    names = [n for n in rows[0]["grad"] if match(n, want["targets"])]
    losses = [r["loss"] for r in rows]
    if code == "TH813":
        own = [n for n in facts["still"] if match(n, want["targets"])]
        moved = set(facts["still"]) - set(own)
        if not own or moved:
            return f"still {own[:2]}, others still {list(moved)[:2]}"
        if kind == "frozen" and any(n in rows[0]["grad"] for n in own):
            return "in the optimizer"
        return "" if losses[-1] < losses[0] else "does not learn"
    if code == "TH810" and kind == "sigmoid_stack":
        weights = [n for n in rows[0]["grad"] if n.endswith("weight")]
        ratio = median(r["grad"][weights[0]] / (r["grad"][weights[-1]] or 1e-30) for r in rows)
        return "" if ratio < 1e-3 else f"first/last {ratio:.1e}"
    if code == "TH810":
        every = list(rows[0]["grad"])
        first = next(i for i, n in enumerate(every) if n.startswith(layer + "."))
        before, after = every[:first], [n for n in every if n.startswith(layer + ".")]
        before = [n for n in before if rows[0]["grad"][n] is not None]
        big = max(median(r["grad"][n] for r in rows) for n in before)
        ratio = big / median(median(r["grad"][n] for r in rows) for n in after)
        return "" if ratio < 1e-4 else f"ratio {ratio:.1e}"
    values = {n: [r["grad"][n] for r in rows[step:]] for n in names}
    if code == "TH811":
        zero = [n for n, series in values.items() if all(v == 0 for v in series)]
        alive = [n for n in rows[0]["grad"] if all(r["grad"][n] for r in rows)]
        before = step == 0 or all(rows[step - 1]["grad"][n] for n in names)
        return "" if zero and alive and before else f"zero {zero[:3]} of {names[:3]}, alive {len(alive)}"
    if code == "TH812":
        none = all(v is None for series in values.values() for v in series)
        before = step == 0 or all(rows[step - 1]["grad"][n] is not None for n in names)
        others = [n for n in rows[0]["grad"] if n not in names and rows[-1]["grad"][n] is None]
        return (
            ""
            if values and none and before and not others
            else f"{[s[:3] for s in values.values()][:2]} also {others[:3]}"
        )
    usual = {n: median(r["grad"][n] for r in rows[step - 10 : step]) for n in rows[0]["grad"]}
    factor = {n: rows[step]["grad"][n] / (usual[n] or 1e-30) for n in usual}
    own = max(factor[n] for n in names)
    rest = sum(factor[n] < 10 for n in factor)
    good = own > 300 and rest >= 2 and not leaps(losses, step, 1)
    return "" if good else f"gradient {own:.1f} times, others as usual {rest}"


def healthy(facts):
    """Check that everything is finite, the loss falls, every parameter learns and nothing stands out."""
    notes = []
    if facts["events"] or facts["skips"]:
        notes.append(f"events {facts['events'][:1]} skips {facts['skips'][:3]}")
    for run in facts["runs"]:
        rows = run["rows"]
        losses = [r["loss"] for r in rows]
        if not statistics.mean(losses[-10:]) < 0.6 * statistics.mean(losses[:3]):
            notes.append(f"loss {losses[0]:.3f} to {losses[-1]:.3f}")
        if not 110 <= len(rows) <= 200:
            notes.append(f"{len(rows)} updates")
        spikes = [i for i in range(20, len(rows)) if losses[i] > 1.6 * max(losses[max(0, i - 20) : i])]
        if spikes:
            notes.append(f"loss leaps at {spikes}")
        if run["changed"]:
            notes.append(f"weights change between updates at {list(run['changed'])[:3]}")
        no = [n for n in rows[0]["grad"] if any(not r["grad"][n] for r in rows)]
        if no:
            notes.append(f"no gradient: {no[:4]}")
        size = {n: median(r["grad"][n] or 0 for r in rows) for n in rows[0]["grad"] if n.endswith("weight")}
        small = {n: f"{v:.1e}" for n, v in size.items() if v < 1e-4 * max(size.values())}
        if small:
            notes.append(f"small gradients {small}")
    if facts["still"]:
        notes.append(f"still {facts['still'][:4]}")
    if facts["clips"] and max(facts["clips"]) > 1:
        notes.append(f"clipped {sum(c > 1 for c in facts['clips'])} times")
    return "; ".join(notes)


def child(entry):
    """Run one script under the hooks; only in a forked process."""
    (HERE / "facts").mkdir(exist_ok=True)
    (HERE / "baseline").mkdir(exist_ok=True)
    os.environ["FAULT"] = json.dumps(entry["fault"])
    log = HERE / "facts" / f"{entry['id']}.log"
    fd = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    err = os.open(str(log) + ".err", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    os.dup2(fd, 1)
    os.dup2(err, 2)
    import time

    from probe import EnoughError, Probe

    step, code = entry["fault"]["step"], CODES.get(entry["kind"], "")
    begin = step if code in ("TH801", "TH802", "TH803", "TH816") or entry["kind"] == "param_nan" else None
    after = {"TH801": 2, "TH802": 2, "TH803": 2, "TH804": 3, "TH805": 12, "TH807": 4, "TH817": 8, "TH818": 2}
    stop = step + after[code] if code in after else None
    probe = Probe(begin, stop)
    probe.install()
    start = time.process_time()
    sys.argv = [str(script(entry))]
    with contextlib.suppress(EnoughError):
        runpy.run_path(str(script(entry)), run_name="__main__")
    sys.stdout.flush()
    facts = probe.report() | {"seconds": time.process_time() - start}
    (HERE / "facts" / f"{entry['id']}.json").write_text(json.dumps(facts))
    if stop is None:
        (HERE / "baseline" / f"{entry['id']}.json").write_text(
            json.dumps({"fault": entry["fault"], "stdout": log.read_text(), "code": 0})
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--check", action="store_true", help="do not run, only look at the facts")
    options = parser.parse_args()
    path = HERE / "truth.jsonl"
    known = {r["id"]: r for line in path.read_text().splitlines() for r in [json.loads(line)]} if path.exists() else {}
    entries = make()
    known = {e["id"]: known[e["id"]] for e in entries if e["id"] in known}
    if not options.check:
        import torch
        from transformers import BertConfig, BertForMaskedLM, get_linear_schedule_with_warmup  # noqa: F401

        torch.set_num_threads(1)
    for e in entries:
        if options.only not in e["id"]:
            continue
        stamp = hashlib.sha256(script(e).read_bytes()).hexdigest()[:12]
        old = known.get(e["id"], {})
        fresh = old.get("fault") == e["fault"] and old.get("stamp") == stamp
        if not options.check and (options.again or not (fresh and old["ok"])):
            (HERE / "facts" / f"{e['id']}.json").unlink(missing_ok=True)
            sys.stdout.flush()
            pid = os.fork()
            if not pid:
                code = 1
                try:
                    child(e)
                    code = 0
                except BaseException:
                    import traceback

                    traceback.print_exc()
                finally:
                    sys.stderr.flush()
                    os._exit(code)
            os.waitpid(pid, 0)
        file = HERE / "facts" / f"{e['id']}.json"
        if not file.exists():
            if options.check:
                continue
            note, seconds = (HERE / "facts" / f"{e['id']}.log.err").read_text()[-400:], 0
        else:
            facts = json.loads(file.read_text())
            seconds = facts["seconds"]
            try:
                note = check(e, facts) if e["expected"] else healthy(facts)
            except Exception as error:
                note = f"check failed: {error!r}"
        known[e["id"]] = {
            "id": e["id"],
            "ok": not note,
            "note": note,
            "fault": e["fault"],
            "stamp": stamp,
            "seconds": round(seconds, 1),
        }
        if note:
            print(f"{e['id']} [{seconds:.1f} s] {e['fault']['layer']} @{e['fault']['step']}: {note}", flush=True)
        path.write_text("".join(json.dumps(r) + "\n" for r in known.values()))
    print(f"{sum(r['ok'] for r in known.values())} of {len(known)} are true")


if __name__ == "__main__":
    main()
