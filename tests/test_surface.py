"""Freeze the public names of the package, so that none is added or removed by accident."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import tenterhook as th
from tenterhook.actions import BUILTIN

ERRORS = {
    "ActionError", "AttachedError", "ContractError", "DormantError", "ExpectError", "HookError", "InPlaceError",
    "MismatchError", "NoMatchError", "NonFiniteError", "PlanError", "PlanFileError", "RanksError", "RefusedError",
    "ResolveError", "ReturnError", "StateError", "StoreError", "TenterhookError", "UnknownHookError",
}  # fmt: skip
ACTIONS = {
    "capture", "clip_adaptive", "clip_norm", "clip_value", "clip_zscore", "digest", "histogram", "mask", "nan_to_num",
    "noise", "ratio", "replicas", "reverse", "scale", "skew", "spike", "stats", "steer", "watch_nonfinite",
    "weight_digest",
}  # fmt: skip
DATA = {"Action", "Hook", "Plan", "When"}
RIG = {"Handle", "Rig", "attach", "detach", "find_nonfinite", "flight", "hook", "inventory", "tap", "watch"}
DOCTOR = {"Exam", "Finding", "Findings", "check", "effect", "examine"}
KEEP = {"DcpState", "restore"}
RECORD = {"Flight", "ReadLimits", "Run", "Store", "Verdict", "open_run"}
OWN = {"Context", "Partial", "Registry", "action"}


def test_the_names():
    assert set(th.__all__) == ERRORS | ACTIONS | DATA | RIG | KEEP | RECORD | DOCTOR | OWN
    assert all(getattr(th, name) is not None for name in th.__all__)
    assert set(dir(th)) == set(th.__all__)


def test_the_built_in_actions_are_all_there():
    assert set(BUILTIN.names()) == ACTIONS


def test_the_rig():
    public = {n for n in vars(th.Rig) if not n.startswith("_")}
    assert public == {
        "add", "attached", "captured", "detach", "flush", "follow", "imbalances", "ledger", "load_state_dict",
        "mute", "remove", "reports", "revise", "rows", "state_dict", "step", "step_count", "unmute", "values",
        "vectors", "verdict", "verdicts",
    }  # fmt: skip


def test_only_the_first_arguments_are_positional():
    firsts = {th.attach: 2, th.hook: 2, th.watch: 2, th.tap: 2, th.restore: 2, th.detach: 1, th.inventory: 1,
              th.check: 2, th.effect: 2, th.examine: 1}  # fmt: skip
    for fn, first in firsts.items():
        kinds = [p.kind for p in inspect.signature(fn).parameters.values()]
        assert kinds[:first] == [inspect.Parameter.POSITIONAL_OR_KEYWORD] * first
        assert set(kinds[first:]) <= {inspect.Parameter.KEYWORD_ONLY}


def test_an_unknown_name_is_an_attribute_error():
    try:
        th.nowhere
    except AttributeError as error:
        assert str(error) == "module 'tenterhook' has no attribute 'nowhere'"


def test_the_everyday_tasks_take_no_more_lines_than_raw_hooks():
    root = Path(__file__).parents[1]
    page = (root / "docs" / "migration.md").read_text()
    rows = re.findall(r"^\| (log|clip|steer|remove)[^|]*\| (.*) \| (.*) \|$", page, re.M)
    assert len(rows) == 5
    for _, ours, raw in rows:
        assert len(re.findall(r"`[^`]+`", ours)) == 1, "one line"
        assert ";" not in ours and raw
    assert len((root / "README.md").read_text().splitlines()) <= 150
