"""Implement `tenterhook check`, which reads a plan file and resolves the plan against a model."""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from typing import Any

from tenterhook.cli.finding_args import add_finding_arguments, exit_code, select, unknown_code
from tenterhook.cli.imports import add_actions_argument, import_actions, import_function
from tenterhook.errors import ResolveError
from tenterhook.plan import Plan


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "check",
        help="check a plan file, alone or against a model",
        description="Read a plan file in JSON or TOML. With --model, also resolve the plan against a model, count "
        "the targets of each hook, and report problems. The model is not run.",
    )
    parser.add_argument("plan", metavar="PLAN")
    parser.add_argument(
        "--model",
        metavar="MODULE:FACTORY",
        help="function that takes no arguments and returns a model, or a model and its optimizer",
    )
    add_actions_argument(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")
    add_finding_arguments(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    if problem := unknown_code(args):
        print(f"tenterhook check: {problem}", file=sys.stderr)
        return 2
    plan = Plan.load(args.plan)
    rows: list[dict[str, Any]] = [
        {"id": h.id, "on": [h.on] if isinstance(h.on, str) else list(h.on), "at": h.at, "do": h.doing} for h in plan
    ]
    code = 0
    findings = "the targets and the actions were not checked; to check them, pass --model module:factory"
    listed: list[Any] = []
    if args.model:
        from tenterhook.doctor import check

        import_actions(args)
        model, optimizer = _call_factory(args.model)
        found = select(check(model, plan, optimizer=optimizer), args)
        for row, hook in zip(rows, plan, strict=True):
            row["targets"] = _count_targets(model, hook, optimizer)
        findings, code, listed = repr(found), exit_code(found, args), json.loads(found.to_json())["findings"]
    if args.json:
        print(json.dumps({"tenterhook": 1, "digest": plan.digest, "hooks": rows, "findings": listed}, indent=2))
    else:
        print(f"{len(plan)} hook{'s' * (len(plan) != 1)}, digest {plan.digest}")
        for row in rows:
            targets = f": {row['targets'] or 'no'} target{'s' * (row['targets'] != 1)}" if "targets" in row else ""
            print(f"  {row['id']}: {row['do']} at {row['at']} on {', '.join(row['on'])}{targets}")
        print(findings)
    return code


def _call_factory(where: str) -> tuple[Any, Any]:
    """Return the model and the optimizer that the factory creates. Without an optimizer, return the model and None."""
    asked = f"--model {where}"
    factory = import_function(where, asked, remedy="write --model package.module:factory")
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise ResolveError(
            f"{asked}: the function cannot be called without arguments: {error}",
            remedy="write a function without parameters that returns the model, and name that one",
        ) from None
    except ValueError:
        pass  # a function that is not written in Python has no signature
    made = factory()
    model, optimizer = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not hasattr(model, "named_modules"):
        raise ResolveError(
            f"{asked}: the function returned an object of type {type(made).__name__}",
            remedy="return the model, or the model and its optimizer: `return model, optimizer`",
        )
    return model, optimizer


def _count_targets(model: Any, hook: Any, optimizer: Any) -> int | None:
    """Return the number of targets of a hook, or None if the hook is refused."""
    from tenterhook.errors import TenterhookError
    from tenterhook.resolve.model_view import ModelView
    from tenterhook.resolve.resolution import find_targets
    from tenterhook.resolve.targets import named_optimizers

    try:
        return len(find_targets(hook, ModelView(model, named_optimizers(optimizer))))
    except TenterhookError:
        return None
