"""Test the tools of contributors: `scripts/prose`, `scripts/test`, `scripts/check` and the pre-commit configuration."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import LONG
from tests.support.needs import needs

ROOT = Path(__file__).parents[1]


def load(script: str) -> ModuleType:
    """Import a script, whose file has no suffix."""
    loader = SourceFileLoader(script, str(ROOT / "scripts" / script))
    spec = importlib.util.spec_from_loader(script, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


prose = load("prose")
runner = load("test")
versions = load("versions")


@pytest.mark.parametrize(
    ("name", "text", "reported"),
    [
        ("a.py", 'def f():\n    """What a layer has."""\n', "begins with 'What'"),
        ("a.py", 'def f():\n    """Quickly a layer."""\n', "does not begin with a verb"),
        ("a.py", 'async def f():\n    """The layer is returned."""\n', "does not begin with a verb"),
        ("a.py", 'class A:\n    """A layer of a model."""\n', "has no verb"),
        ("a.py", '"""Layers."""\n', "has no verb"),
        ("a.py", "x = 1  # the layer is said\n", "'said'"),
        ("a.py", "raise ValueError(f'the hook {x} is told')\n", "'told'"),
        ("a.md", "# Title\n\nA hook goes on with it.\n", "'goes on with'"),
        ("a.ipynb", '{"cells": [{"source": ["made anew"]}]}', "'anew'"),
    ],
)
def test_prose_reports_each_fault(name: str, text: str, reported: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    ((_, _, found),) = prose._check(tmp_path / name)
    assert reported in found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", '"""Defines layers."""\nclass A:\n    """A layer that has a name."""\n'),
        ("a.py", 'def f():\n    """Return a layer."""\n'),
        ("a.py", "said = 1  # the hook fired\n"),
        ("a.md", "The layer is registered.\n"),
    ],
)
def test_prose_accepts_plain_english(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert list(prose._check(tmp_path / name)) == []


def test_prose_ends_with_an_error_only_if_it_reports_something(capsys: pytest.CaptureFixture[str]) -> None:
    assert prose.main(["README.md"]) == 0
    assert capsys.readouterr().out == "0 sentences to rewrite in 1 files\n"
    prose.PHRASES["tenterhook"] = "another name"
    try:
        assert prose.main(["README.md"]) == 1
    finally:
        del prose.PHRASES["tenterhook"]
    assert "README.md:1: 'tenterhook', write 'another name'" in capsys.readouterr().out


def test_every_package_has_tests_that_exist() -> None:
    source = ROOT / "src" / "tenterhook"
    for package in (path.parent.relative_to(source) for path in source.rglob("__init__.py")):
        if package != Path("."):
            assert runner.tests_of(package.as_posix()), package
    paths = {path for tests in runner.COVERED_BY.values() for path in tests}
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert [package for package in runner.COVERED_BY if not (source / package).is_dir()] == []


def test_every_folder_of_tests_covers_a_package() -> None:
    covered = {path for tests in runner.COVERED_BY.values() for path in tests}
    folders = {p.relative_to(ROOT).as_posix() for p in (ROOT / "tests").iterdir() if list(p.glob("test_*.py"))}
    assert folders - covered == {"tests/docs", "tests/models"}


def test_an_unknown_package_is_named() -> None:
    with pytest.raises(SystemExit, match="there is no package 'rigs'; the packages are actions"):
        runner.main(["rigs"])


def test_the_stages_are_the_marks() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    marks = [mark.partition(":")[0] for mark in settings["tool"]["pytest"]["ini_options"]["markers"]]
    marks.remove("slice(n)")  # not a stage
    assert sorted(marks) == sorted(("fast", *LONG))
    check = (ROOT / "scripts" / "check").read_text()
    (cases,) = re.findall(r"^ +(fast .*)\) marks\+=", check, flags=re.MULTILINE)
    (default,) = re.findall(r"in \$\{\*:-(.*)\}; do", check)
    (matrix,) = re.findall(r"stage: \[(.*)\]", (ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert sorted(cases.split(" | ")) == sorted(marks)
    assert sorted(default.split()) == sorted(matrix.split(", ")) == sorted(["static", *marks])


def test_an_unknown_stage_is_an_error() -> None:
    done = subprocess.run([ROOT / "scripts" / "check", "quick"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "scripts/check: there is no stage 'quick'\n")


def test_every_command_before_a_commit_is_one_that_ci_runs() -> None:
    needs("pre_commit")
    config = ROOT / ".pre-commit-config.yaml"
    valid = subprocess.run(
        [sys.executable, "-m", "pre_commit", "validate-config", config], capture_output=True, text=True
    )
    assert valid.returncode == 0, valid.stdout + valid.stderr
    entries = [line.split("entry: ")[1] for line in config.read_text().splitlines() if "entry: " in line]
    check = (ROOT / "scripts" / "check").read_text()
    assert entries and all(entry.removesuffix(" --fix") in check for entry in entries)


@pytest.mark.parametrize(
    ("given", "selected"),
    [
        ([], versions.PAIRS),
        (["2.15.0"], [pair for pair in versions.PAIRS if pair[0] == "2.15.0"]),
        (["3.11"], [pair for pair in versions.PAIRS if pair[1] == "3.11"]),
        (["2.15.0", "3.12"], [("2.15.0", "3.12")]),
        (["2.14.1", "3.13"], [("2.14.1", "3.13")]),
    ],
)
def test_versions_are_selected(given: list[str], selected: list[tuple[str, str]]) -> None:
    assert versions.pairs(given) == selected


def test_the_workflow_runs_every_pair_at_night_and_the_newest_torch_on_each_change() -> None:
    workflow = (ROOT / ".github" / "workflows" / "versions.yml").read_text()
    assert re.findall(r'\{ torch: "(.*)", python: "(.*)" \}', workflow) == versions.PAIRS
    assert "- run: scripts/versions 2.15.0 3.11\n" in workflow


def test_torch_shares_the_cuda_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "SHARED", tmp_path / "shared")
    (tmp_path / "shared" / "2.15.0" / "nvidia").mkdir(parents=True)
    metadata = tmp_path / "torch-2.15.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    plain = "Name: torch\nRequires-Dist: filelock"
    metadata.write_text(f"{plain}\nRequires-Dist: nvidia-nccl-cu13==2.30.7; x\nRequires-Dist: triton~=3.9.0; x")
    versions.share_cuda(tmp_path, "2.15.0", ())
    assert metadata.read_text() == plain
    assert (tmp_path / "nvidia").resolve() == tmp_path / "shared" / "2.15.0" / "nvidia"
    versions.share_cuda(tmp_path, "2.15.0", ())  # nothing is left to share, as in a CPU build


def test_a_result_is_added_to_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "RESULTS", tmp_path / "versions.json")
    page = tmp_path / "versions.md"
    page.write_text("# Versions\n\n| torch | an old table\n")
    for torch, skipped in (("2.15.0", {"no browser": 2}), ("2.13.0", {}), ("2.15.0", {"no browser": 1})):
        counts = {"passed": 9, "second": 1, "failed": 0, "skipped": skipped}
        versions.write({f"{torch} 3.11": {"torch": torch, "python": "3.11", **counts, "commit": "abc"}})
    assert page.read_text().splitlines() == [
        "# Versions",
        "",
        "| torch | Python | passed | in a second try | failed | skipped | commit |",
        "|---|---|---|---|---|---|---|",
        "| 2.13.0 | 3.11 | 9 | 1 | 0 | 0 | abc |",
        "| 2.15.0 | 3.11 | 9 | 1 | 0 | 1: no browser | abc |",
    ]


def test_a_failed_test_is_run_again_alone(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (environment / "bin" / "python").chmod(0o755)
    report = tmp_path / "report.xml"
    bad = '<testcase classname="tests.test_scripts" name="test_the_stages_are_the_marks"><failure/></testcase>'
    worse = '<testcase classname="tests.test_scripts" name="test_that_does_not_exist"><failure/></testcase>'
    report.write_text(f"<testsuite>{bad}<testcase classname='tests.x' name='y'/></testsuite>")
    found = versions.results_of(environment, report)
    assert (found["passed"], found["second"], found["failed"]) == (2, 1, 0)
    report.write_text(f"<testsuite>{worse}<testcase classname='tests.x' name='y'/></testsuite>")
    found = versions.results_of(environment, report)
    assert (found["passed"], found["second"], found["failed"]) == (1, 0, 1)
