"""Check that the versions that the project claims are those with which the whole suite ran without a failure."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from tenterhook.torch_internals.torch_version import FLOOR, TESTED, as_text

ROOT = Path(__file__).parents[2]
RAN = list(json.loads((ROOT / "docs" / "versions.json").read_text()).values())


def test_every_run_had_no_failure_and_skipped_only_what_an_earlier_torch_lacks() -> None:
    assert {run["failed"] for run in RAN} == {0}
    assert all(run["passed"] > 3000 for run in RAN)
    for run in RAN:
        for why in run["skipped"]:
            before = re.match(r"torch before 2\.(\d+) ", why)
            assert before is not None and int(run["torch"].split(".")[1]) < int(before[1]), why


def test_the_classifiers_are_the_pythons_that_ran() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    claimed = {one.rpartition(" ")[2] for one in classifiers if one.startswith("Programming Language :: Python :: 3.")}
    assert claimed == {run["python"] for run in RAN}


def test_the_oldest_and_the_newest_torch_ran() -> None:
    ran = sorted({run["torch"].rpartition(".")[0] for run in RAN})
    assert (ran[0], ran[-1]) == (as_text(FLOOR), as_text(TESTED))


def test_the_pages_show_what_ran() -> None:
    page = (ROOT / "docs" / "versions.md").read_text()
    for run in RAN:
        skipped = "; ".join(f"{count}: {why}" for why, count in run["skipped"].items()) or "0"
        counts = f"{run['passed']} | {run['second']} | 0 | {skipped}"
        row = f"| {run['torch']} | {run['python']} | {counts} | {run['commit']} |"
        assert row in page
    readme = (ROOT / "README.md").read_text()
    pythons = sorted({run["python"] for run in RAN}, key=lambda one: int(one.partition(".")[2]))
    torches = sorted({run["torch"].rpartition(".")[0] for run in RAN})
    assert f"Python {pythons[0]} to {pythons[-1]} and torch {torches[0]} to {torches[-1]}, on Linux" in readme
