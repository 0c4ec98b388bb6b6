"""Check the commands: their options, their error messages and their exit codes."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import tenterhook as th
from tenterhook.cli import main, make_parser
from tests.support.warm_python import warm_python

FLAGS = {
    "run": {
        "--plan",
        "--actions",
        "--alert",
        "--json",
        "--out",
        "--for-diff",
        "--perturb",
        "--quiet",
        "-m",
        "script",
        "arguments",
    },
    "doctor": {"--json", "--patch", "--hooks", "--ignore", "--fail-on", "--exit-code", "-m", "script", "arguments"},
    "view": {"--port", "--no-browser", "runs"},
    "diff": {"--tolerance", "--perturbed", "--json", "one", "other"},
    "report": {"--out", "run"},
    "check": {"--model", "--actions", "--json", "--ignore", "--fail-on", "--exit-code", "plan"},
    "points": {"--json"},
}
PLAN = """
tenterhook = 1
[[hook]]
id = "norms"
on = "**.weight"
at = "grad_final"
do = "stats"
"""


def test_the_flags():
    (commands,) = [a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    found = {
        name: {(a.option_strings or [a.dest])[-1] for a in command._actions if a.dest != "help"}
        for name, command in commands.choices.items()
    }
    assert found == FLAGS


def test_without_a_command_it_helps(capsys: pytest.CaptureFixture[str]):
    assert main([]) == 2
    said = capsys.readouterr().err
    assert all(f"    {name} " in said for name in FLAGS) and "exit codes:" in said


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "plan.toml").write_text(PLAN)
    return tmp_path / "plan.toml"


def test_a_plan_is_read_without_torch(plan: Path):
    program = (
        f"import sys; from tenterhook.cli import main; main(['check', {str(plan)!r}]); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        f"1 hook, digest {th.Plan.load(plan).digest}", "  norms: stats() at grad_final on **.weight",
        "the targets and the actions were not checked; to check them, pass --model module:factory", "False",
    ]  # fmt: skip


def test_runs_are_read_and_compared_without_torch(tmp_path: Path):
    # Importing torch takes seconds and much memory.
    for name in ("a", "b"):
        model = nn.Linear(2, 1)
        with th.attach(model, th.Hook("g", on="**", at="grad", do=th.stats()), sinks=th.Store(tmp_path / name)):
            model(torch.ones(1, 2)).sum().backward()
    program = (
        "import sys; from pathlib import Path; import tenterhook.view.server.serve; "
        "from tenterhook.diff import compare; from tenterhook.view.data.run_data import RunData; "
        "one, other = map(Path, sys.argv[1:]); compare(one, other); "
        "run = RunData('a', one); run.summary(); run.numbers(0); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "a", tmp_path / "b"], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_a_plan_on_a_model(
    plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "made_for_check.py").write_text(
        "import torch\n"
        "def model(): return torch.nn.Linear(2, 1)\n"
        "def nothing(): return torch.nn.ReLU()\n"
        "def both():\n    m = model()\n    return m, torch.optim.SGD(m.parameters(), lr=0.1)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["check", str(plan), "--model", "made_for_check:both", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["hooks"] == [
        {"id": "norms", "on": ["**.weight"], "at": "grad_final", "do": "stats()", "targets": 1}
    ]  # fmt: skip
    assert told["findings"] == []
    assert main(["check", str(plan), "--model", "made_for_check:nothing"]) == 1
    assert "no targets\nTH105" in capsys.readouterr().out
    assert main(["check", str(plan), "--model", "made_for_check:nothing", "--fail-on", "never"]) == 0
    assert main(["check", str(plan), "--model", "made_for_check:nothing", "--ignore", "TH105", "--exit-code", "9"]) == 0
    assert main(["check", str(plan), "--model", "made_for_check:nothing", "--exit-code", "9"]) == 9
    assert main(["check", str(plan), "--ignore", "nothing"]) == 2
    assert capsys.readouterr().err == (
        "tenterhook check: --ignore nothing: this code does not exist\n"
        "  remedy: write a code that a report shows, such as --ignore TH301\n"
    )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["check", "nowhere.toml"], "nowhere.toml"),
        (["check", "PLAN", "--model", "json"], "does not name a function"),
        (["check", "PLAN", "--model", "json:nothing"], "json has no function 'nothing'"),
        (["report", "nowhere"], "the folder nowhere does not exist\n  remedy: pass a folder that"),
        (["run", "nowhere.py"], "the file 'nowhere.py' does not exist"),
        (["doctor", "nowhere.py"], "the file 'nowhere.py' does not exist"),
        (["run", "--plan", "nowhere.toml", "PLAN"], "nowhere.toml"),
        (["doctor", "-m", "nowhere"], "no module is named 'nowhere'"),
        (["run", "-m", "nowhere.inside"], "no module is named 'nowhere.inside'"),
        (["doctor", "tests"], "the file 'tests' is a folder, not a script"),
        (["check", "PLAN", "--model", "json:detect_encodng"], "remedy: write json:detect_encoding"),
        (["check", "PLAN", "--model", "json:dumps"], "cannot be called without arguments: missing a required argument"),
        (["check", "PLAN", "--model", "made.py:build"], "remedy: write the module without .py: made"),
        (["check", "PLAN", "--model", "gc:collect"], "the function returned an object of type int\n  remedy: return"),
    ],
)
def test_what_cannot_be_done_is_said(command: list[str], said: str, plan: Path, capsys: pytest.CaptureFixture[str]):
    assert main([str(plan) if word == "PLAN" else word for word in command]) == 2
    assert said in capsys.readouterr().err


SCRIPT = """
import sys, torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
print(sys.argv[1:], __name__)
if "raise" in sys.argv:
    raise ValueError("mine")
sys.exit(7 if "seven" in sys.argv else 0)
"""


def run(tmp_path: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    import os

    (tmp_path / "train.py").write_text(SCRIPT)
    command = [warm_python(), "-m", "tenterhook", "run", "--out", "out", *words]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, **more})


def test_the_scripts_arguments_exit_code_and_error_are_its_own(tmp_path: Path):
    done = run(tmp_path, "train.py", "--format", "seven")
    assert (done.returncode, done.stdout) == (7, "['--format', 'seven'] __main__\n")
    assert done.stderr.splitlines()[0] == "tenterhook: Linear (SGD), 3 steps -> out/Linear"
    done = run(tmp_path, "train.py", "raise")
    assert done.returncode == 1
    # The traceback is the interpreter's. SGD does not count steps, so the run continues the steps of the folder.
    assert done.stderr.startswith("Traceback (most recent call last):\n  File ") and "runpy" not in done.stderr
    assert "ValueError: mine" in done.stderr and "Linear (SGD), 6 steps" in done.stderr
    assert th.open_run(tmp_path / "out" / "Linear").curve("training", "weight", "norm").steps == list(range(6))
    assert (tmp_path / "out" / "Linear" / "flights" / "step-00000005" / "flight.json").exists()


def test_a_plan_of_ones_own_and_the_one_that_overrides_it(tmp_path: Path, plan: Path):
    (tmp_path / "other.json").write_text(
        th.Plan([th.Hook("mine", on="nowhere.weight", at="grad_final", do=th.stats())]).to_json()
    )
    assert run(tmp_path, "--plan", str(plan), "--quiet", "train.py").stderr == ""
    assert [h["hook"] for h in th.open_run(tmp_path / "out" / "Linear").ledger] == ["norms"]
    done = run(tmp_path, "--plan", str(plan), "train.py", TENTERHOOK_PLAN=str(tmp_path / "other.json"))
    assert done.returncode == 3 and done.stdout == "[] __main__\n"
    assert "\ntenterhook: Linear (SGD) is not watched\n" in done.stderr
    assert "no parameter is named 'nowhere.weight'" in done.stderr


NOTHING = {
    "no step": ("print('x')", "tenterhook: no optimizer stepped in this process, so nothing was recorded\n"),
    "no module": (
        "w = torch.ones(2, requires_grad=True); o = torch.optim.Adam([w])\nw.sum().backward(); o.step()",
        "tenterhook: Adam stepped, but nothing was recorded: no nn.Module holds the parameters of this optimizer\n",
    ),
    "one of two optimizers": (
        "m = torch.nn.Linear(2, 2); o, idle = torch.optim.SGD([m.weight]), torch.optim.Adam([m.bias])\n"
        "m(torch.ones(2)).sum().backward(); o.step()",
        "tenterhook: SGD stepped, but nothing was recorded: it took only one step, and Linear has another optimizer, "
        "which took none\n",
    ),
    "no gradient": (
        "m = torch.nn.Linear(2, 2); o = torch.optim.SGD(m.parameters())\nfor _ in range(3): o.step()",
        "  recorded nothing: hook 'norms' at grad_final: it was skipped: no gradient at the optimizer's step\n",
    ),
}


@pytest.mark.parametrize("script, reason", NOTHING.values(), ids=NOTHING)
def test_a_run_that_recorded_nothing_reports_the_reason(tmp_path: Path, plan: Path, script: str, reason: str):
    (tmp_path / "idle.py").write_text(f"import torch\n{script}")
    done = run(tmp_path, "--plan", str(plan), "idle.py")
    assert done.returncode == 0
    assert reason in done.stderr


def test_a_run_that_is_turned_off_reports_that_it_recorded_nothing(tmp_path: Path):
    done = run(tmp_path, "train.py", TENTERHOOK="0")
    assert "  recorded nothing: TENTERHOOK=0 is set\n" in done.stderr


ACTION = """
import tenterhook as th

@th.action("halved_by_{name}", modifies=True, at="grad_final")
def halved(grad, ctx):
    return grad / 2
"""
TRAIN = """
import sys, torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    print("step", step, file=sys.stderr, flush=True)
"""


def own(folder: Path, name: str) -> None:
    """Write a plan, a module that registers its action, a script and a factory into the folder."""
    (folder / f"{name}.py").write_text(ACTION.format(name=name))
    (folder / "plan.toml").write_text(PLAN.replace('"stats"', f'"halved_by_{name}"'))
    (folder / "train.py").write_text(TRAIN)
    (folder / f"made_{name}.py").write_text("import torch\nmake = lambda: torch.nn.Linear(2, 1)")


def tenterhook(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [warm_python(), "-m", "tenterhook", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_a_script_is_run_with_an_action_from_a_module(tmp_path: Path):
    own(tmp_path, "mine")
    done = tenterhook(tmp_path, "run", "--plan", "plan.toml", "--actions", "mine", "--out", "run", "train.py")
    assert done.returncode == 0, done.stderr
    (row,) = th.open_run(tmp_path / "run" / "Linear").ledger
    assert (row["do"], row["fired"], row["changed"]) == ("halved_by_mine()", 3, 3)


def test_a_plan_that_cannot_be_attached_is_said_at_the_first_step(tmp_path: Path):
    own(tmp_path, "absent")
    done = tenterhook(tmp_path, "run", "--plan", "plan.toml", "--out", "run", "train.py")
    before, _, after = done.stderr.partition("step 0\n")
    assert done.returncode == 3 and "step 2" in after
    assert (
        "Linear continues without the plan: hook 'norms' at grad_final: the action 'halved_by_absent' is not registered"
        in before
    )


def test_a_plan_is_checked_with_an_action_from_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    own(tmp_path, "checked")
    monkeypatch.chdir(tmp_path)
    before = sys.path[:]
    asked = ["check", "plan.toml", "--model", "made_checked:make"]
    assert main(asked) == 1
    assert main([*asked, "--actions", "checked"]) == 1  # the factory returns no optimizer
    said = capsys.readouterr().out
    assert said.count("the action 'halved_by_checked' is not registered") == 1 and "pass optimizer=optimizer" in said
    assert main([*asked, "--actions", "nowhere"]) == 2
    assert "--actions nowhere: No module named 'nowhere'" in capsys.readouterr().err
    assert sys.path == before
