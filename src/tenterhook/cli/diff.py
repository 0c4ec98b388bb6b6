"""Implement `tenterhook diff`, which finds the first step and layer in which two runs differ."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "diff",
        help="find the first step and layer in which two runs differ",
        description="Compare two recorded runs, and print the first difference in the order of execution: the data, a "
        "weight, the output of a layer, the loss, a gradient, the learning rate or an update. Record both runs with "
        "`tenterhook run --for-diff N`. Runs with an equal setup are compared bit by bit, others with a tolerance. The "
        "exit code is 0 if the runs are equal, 1 if they differ, and 2 if they cannot be compared.",
    )
    parser.add_argument("one", metavar="A", help="run folder, or a folder that contains one run")
    parser.add_argument("other", metavar="B", help="run folder, or a folder that contains one run")
    parser.add_argument(
        "--tolerance",
        type=float,
        metavar="X",
        help="largest relative difference that counts as equal (default: estimated)",
    )
    parser.add_argument(
        "--perturbed",
        action="append",
        default=[],
        metavar="RUN",
        help="run of the same program as A, recorded with `run --for-diff N --perturb`; the tolerance is taken from it",
    )
    parser.add_argument("--json", metavar="FILE", help="write the result to FILE as JSON")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    import json
    from dataclasses import asdict

    from tenterhook.diff import compare
    from tenterhook.record import write_file

    found = compare(args.one, args.other, tolerance=args.tolerance, perturbed=args.perturbed)
    print(found)
    if args.json:
        write_file(args.json, json.dumps(asdict(found)).encode())
    return {True: 0, False: 1, None: 2}[found.equal]
