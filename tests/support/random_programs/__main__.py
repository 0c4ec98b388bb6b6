"""Run many random programs: python -m tests.support.random_programs FIRST COUNT [options]."""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections import Counter, defaultdict

import torch

from tests.support.random_programs.execution import Outcome, execute
from tests.support.random_programs.programs import Program, generate, only_steps
from tests.support.random_programs.shrink import points, shrink, signature


def main() -> int:
    """Run the command. Return 1 if a program failed silently or crashed."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.random_programs", description=__doc__)
    parser.add_argument("first", type=int, nargs="?", default=0, help="the first seed")
    parser.add_argument("count", type=int, nargs="?", default=100, help="the number of programs")
    parser.add_argument("--compiled", metavar="BACKEND", help="compile the hooked model, for example with aot_eager")
    parser.add_argument("--shrink", type=int, metavar="SEED", help="shrink one program and print it")
    parser.add_argument("--classify", action="store_true", help="shrink every failure, and count those that look alike")
    parser.add_argument("--steps", action="store_true", help="nothing but training steps, to check the oracle itself")
    parser.add_argument("--without", default="", metavar="OPS", help="leave out these operations, separated by commas")
    parser.add_argument("--often", default="", metavar="OPS", help="draw these operations, or method, more often")
    parser.add_argument("--json", action="store_true", help="print the counts and the failures as JSON")
    parser.add_argument("--quiet", action="store_true", help="do not print a line for each failure")
    args = parser.parse_args()
    torch.set_num_threads(1)
    execute(generate(0))  # so that torch has imported what it imports late
    gc.freeze()  # so that collecting the garbage of a program is fast
    left_out, often = (frozenset(name for name in names.split(",") if name) for names in (args.without, args.often))

    def program(seed: int) -> Program:
        made = generate(seed, often).without(left_out)
        return only_steps(made) if args.steps else made

    if args.shrink is not None:
        small, outcome = shrink(program(args.shrink), args.compiled)
        print(small)
        print(f"{outcome.kind} {outcome.report}: {outcome.detail}")
        return 0
    kinds: Counter[str] = Counter()
    reports: Counter[str] = Counter()
    failed: dict[int, Outcome] = {}
    start = time.perf_counter()
    for seed in range(args.first, args.first + args.count):
        outcome = execute(program(seed), args.compiled)
        kinds[outcome.kind] += 1
        if outcome.about == "alarm" and not (args.quiet or args.json):
            print(f"alarm {seed}: {outcome.report}")
        if outcome.kind in ("silent", "crash"):
            failed[seed] = outcome
            if not (args.quiet or args.json):
                print(describe(seed, outcome))
        elif outcome.report:
            reports[f"{outcome.about}: {outcome.report}"] += 1
    spent = time.perf_counter() - start
    if args.json:
        failures = [describe(seed, outcome) for seed, outcome in failed.items()]
        print(json.dumps({"kinds": kinds, "reports": reports, "failures": failures}))
        return int(bool(failed))
    if args.classify:
        classify({seed: program(seed) for seed in failed}, args.compiled)
    for report, count in reports.most_common():
        print(f"{count:5} reported, {report}")
    print(", ".join(f"{kinds[kind]} {kind}" for kind in ("exact", "reported", "silent", "crash")),
          f"({args.count / spent:.1f} programs per second)")  # fmt: skip
    return int(bool(failed))


def describe(seed: int, outcome: Outcome) -> str:
    detail = " | ".join(outcome.detail.splitlines())
    return f"{outcome.kind} {seed}: {'; '.join(outcome.operations)}: {detail}"


def classify(programs: dict[int, Program], compiled: str | None) -> None:
    """Print how many of the failing programs look alike after they are shrunk, with the smallest example of each."""
    groups: dict[str, list[tuple[int, Program, Outcome]]] = defaultdict(list)
    for seed, program in programs.items():
        small, outcome = shrink(program, compiled)
        groups[signature(small, outcome)].append((seed, small, outcome))
    for text, members in sorted(groups.items(), key=lambda item: -len(item[1])):
        seed, small, outcome = min(members, key=lambda member: len(str(member[1])))
        counts = Counter(points(small, outcome) for _, small, outcome in members)
        print(f"== {len(members)} x {text}")
        print(f"{', '.join(f'{count} {where}' for where, count in counts.most_common())}")
        print(f"seeds {', '.join(str(member[0]) for member in members[:12])}; for seed {seed}:")
        print(f"{small}\n{outcome.detail}\n")


if __name__ == "__main__":
    raise SystemExit(main())
