"""Implement `tenterhook run`, which runs an unmodified script and attaches a plan to its models."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from tenterhook.cli.imports import add_actions_argument, import_actions, import_function
from tenterhook.cli.script_args import add_script_arguments, report_missing_script


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="run an unmodified script, and record its gradients",
        description="Run a script as `python script.py` would. When an optimizer takes its first step, find its "
        "model, attach the plan, and record the results in a folder. With torchrun, use `torchrun ... -m tenterhook "
        "run script.py`. The environment variable TENTERHOOK_PLAN overrides --plan. The exit code is that of the "
        "script, or 3 if that code is 0 and the plan could not be attached to any model.",
    )
    parser.add_argument("--plan", metavar="FILE", help="plan file in JSON or TOML (default: statistics)")
    add_actions_argument(parser)
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="output folder (default: runs/SCRIPT-TIME); if it already contains a run, that run is resumed",
    )
    parser.add_argument("--json", metavar="FILE", help="write the summary with all verdicts to FILE as JSON")
    parser.add_argument(
        "--alert",
        metavar="MODULE:FUNCTION",
        help="call this function with each new verdict while the script runs, for example to send a message",
    )
    parser.add_argument(
        "--for-diff",
        type=_steps,
        metavar="N",
        help="record statistics and digests of every output, gradient, update and weight in the first N steps, so that "
        "`tenterhook diff` can compare two runs",
    )
    parser.add_argument(
        "--perturb",
        action="store_true",
        help="with --for-diff: change each weight by one unit in the last place at the beginning, to see how far "
        "rounding moves the run",
    )
    parser.add_argument("--quiet", action="store_true", help="do not print a summary at the end")
    add_script_arguments(parser)
    parser.set_defaults(execute=execute)


def _steps(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of steps; use a whole number from 1 on")
    return int(text)


def execute(args: argparse.Namespace) -> int:
    if report_missing_script("run", args):
        return 2
    from tenterhook import ranks
    from tenterhook.adapters.auto_attach import AutoAttach
    from tenterhook.diff.plan import DiffRun
    from tenterhook.plan import Plan
    from tenterhook.program import run
    from tenterhook.record import write_file

    out = args.out or Path("runs") / f"{Path(args.script).stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    import_actions(args)
    remedy = "write --alert package.module:function, with a module in the current folder or an installed one"
    alert = import_function(args.alert, f"--alert {args.alert}", remedy=remedy) if args.alert else None
    plan = Plan.load(args.plan) if args.plan else None
    for_diff = DiffRun(args.for_diff, perturbed=args.perturb) if args.for_diff else None
    script = AutoAttach(out, plan=plan, alert=alert, for_diff=for_diff)
    code = run(args.script, args.arguments, script, module=args.module)
    sys.stdout.flush()
    if args.json and ranks.launch_ranks()[0] == 0:
        try:
            write_file(args.json, script.to_json().encode())
        except OSError as error:  # the training is over, and its summary follows
            print(f"tenterhook run: --json {args.json} cannot be written: {error.strerror}", file=sys.stderr)
    if not args.quiet and ranks.launch_ranks()[0] == 0:
        print(script, file=sys.stderr)
        if any(model.rig is not None for model in script.models):
            print(f"  tenterhook report {out}", file=sys.stderr)
    refused = bool(script.models) and all(model.rig is None for model in script.models)
    return code or (3 if refused else 0)
