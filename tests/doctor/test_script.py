"""Test the command `tenterhook doctor script.py`."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tenterhook.cli import main

FAULTY = """
import sys
import torch

def clamp(grad):
    grad = grad.clamp(-1, 1)

x = torch.tensor(10.0, requires_grad=True)
y = x**2
y.register_hook(clamp)
(3 * y).backward()
print(x.grad.item(), *sys.argv[1:])
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(FAULTY)
    return path


def test_a_script_runs_as_it_is_and_its_faults_are_reported(script: Path, capsys: pytest.CaptureFixture[str]):
    before = sys.argv[:], sys.path[:]
    assert main(["doctor", str(script), "--epochs", "3"]) == 1
    out, err = capsys.readouterr()
    assert out == "60.0 --epochs 3\n"
    assert err.startswith("TH301 error: the hook computes a new value but returns None\n")
    assert f"({script}:10)" in err
    assert (sys.argv, sys.path) == before


def test_findings_are_written_to_a_file_and_the_script_prints_as_before(
    script: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    script.write_text(script.read_text() + "\nimport subprocess; subprocess.run(['echo', 'from a child'])\n")
    assert main(["doctor", "--json", str(tmp_path / "found.json"), str(script)]) == 1
    out, err = capfd.readouterr()
    assert "60.0" in out and "from a child" in out and not err
    assert found_in(tmp_path) == ["TH301"]
    assert main(["doctor", "--json", str(tmp_path / "no" / "found.json"), str(script)]) == 2
    assert "found.json cannot be written: No such file or directory" in capfd.readouterr().err


def found_in(folder: Path) -> list[str]:
    return [finding["code"] for finding in json.loads((folder / "found.json").read_text())["findings"]]


@pytest.mark.parametrize(
    ("options", "code", "found"),
    [
        ([], 1, ["TH301"]),
        (["--ignore", "TH301"], 0, []),
        (["--ignore", "TH101", "--ignore", "TH301"], 0, []),
        (["--fail-on", "error"], 1, ["TH301"]),
        (["--fail-on", "never"], 0, ["TH301"]),
        (["--exit-code", "30"], 30, ["TH301"]),
        (["--exit-code", "30", "--fail-on", "never"], 0, ["TH301"]),
    ],
)
def test_findings_are_ignored_and_exit_codes_chosen(
    script: Path, tmp_path: Path, options: list[str], code: int, found: list[str]
):
    assert main(["doctor", "--json", str(tmp_path / "found.json"), *options, str(script)]) == code
    assert found_in(tmp_path) == found


def test_only_a_note_fails_on_notes(script: Path, capsys: pytest.CaptureFixture[str]):
    script.write_text("print('no hooks')\n")  # TH109 is a note
    assert main(["doctor", str(script)]) == 0
    assert main(["doctor", "--fail-on", "note", str(script)]) == 1
    assert "TH109 note" in capsys.readouterr().err


def test_a_code_that_does_not_exist_cannot_be_ignored(script: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["doctor", "--ignore", "TH3011", str(script)]) == 2
    problem = "--ignore TH3011: this code does not exist\n  remedy: write --ignore TH301"
    assert capsys.readouterr().err == f"tenterhook doctor: {problem}\n"


def test_every_hook_with_its_fate(script: Path, capsys: pytest.CaptureFixture[str]):
    main(["doctor", "--hooks", str(script)])
    _, err = capsys.readouterr()
    assert err.startswith("raw hooks\n")
    assert "clamp  register_hook" in err


def test_nothing_wrong(script: Path, capsys: pytest.CaptureFixture[str]):
    script.write_text(FAULTY.replace("grad = grad", "return grad"))
    assert main(["doctor", str(script)]) == 0
    assert capsys.readouterr().err == "no findings\n"


@pytest.mark.parametrize(
    ("end", "code"), [("sys.exit(7)", 7), ("sys.exit('bad')", 1), ("sys.exit()", 1), ("raise ValueError('no')", 1),
                      ("raise KeyboardInterrupt", 130)],
)  # fmt: skip
def test_the_script_s_own_end(script: Path, end: str, code: int, capsys: pytest.CaptureFixture[str]):
    script.write_text(f"{FAULTY}\n{end}\n")
    assert main(["doctor", str(script)]) == code
    assert "TH301" in capsys.readouterr().err


def test_a_script_that_is_not_there(capsys: pytest.CaptureFixture[str]):
    assert main(["doctor", "nowhere.py"]) == 2
    assert capsys.readouterr().err == (
        "tenterhook doctor: the file 'nowhere.py' does not exist\n  remedy: pass the path of a Python script\n"
    )


def test_a_module_in_a_process_of_its_own(script: Path):
    done = subprocess.run(
        [sys.executable, "-m", "tenterhook", "doctor", "-m", "train", "x"],
        cwd=script.parent,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (1, "60.0 x\n"), done.stderr
    assert done.stderr.startswith("TH301 error")


def test_the_script_imports_its_neighbours(script: Path, capsys: pytest.CaptureFixture[str]):
    (script.parent / "my_neighbour.py").write_text("value = 5")
    script.write_text("from my_neighbour import value\nprint(value, __name__)")
    assert main(["doctor", str(script)]) == 0
    assert capsys.readouterr().out == "5 __main__\n"


CLASSIC = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))

def clip(grad):
    grad = torch.clamp(grad, -0.1, 0.1)

torch.manual_seed(0)
model = Net()
model.head.weight.register_hook(lambda grad: grad * 0)  # TH206
state = model.state_dict()
model = Net()
model.load_state_dict(state)
model.body.weight.register_hook(clip)  # TH301
compiled = torch.compile(model, backend="eager")
x = torch.randn(16, 4, requires_grad=True) * 10
x.register_hook(lambda grad: grad * 0.5)  # TH307
for step in range(3):
    compiled(x).square().mean().backward(retain_graph=step < 2)
    if step == 0:
        model.body.register_forward_hook(lambda m, args, out: out * 0)  # TH209
print(x.grad)
"""


def test_the_classic_mistakes_in_one_script(script: Path, tmp_path: Path):
    """Find a missing return, a hook on the old model after a reload, a non-leaf `.grad` and a hook after compile."""
    script.write_text(CLASSIC)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["doctor", "--json", str(tmp_path / "found.json"), str(script)]) == 1
    found = json.loads((tmp_path / "found.json").read_text())["findings"]
    lines = {code: n for n, line in enumerate(CLASSIC.split("\n"), 1) for code in line.partition("# ")[2].split()}
    grave = {f["code"]: f for f in found if f["severity"] != "note"}
    assert set(grave) == set(lines) == {"TH206", "TH209", "TH301", "TH307"}
    assert {code: f["place"] for code, f in grave.items()} == {c: f"{script}:{n}" for c, n in lines.items()}
    assert grave["TH301"]["remedy"] == "def clip(grad):\n    ...\n    return grad"
    assert grave["TH206"]["remedy"].startswith('th.hook(model, fn, on="head.weight", at="grad")')
    assert "torch._dynamo.reset()" in grave["TH209"]["remedy"]
    assert "requires_grad_()" in grave["TH307"]["remedy"]
