"""`tenterhook doctor script.py`."""

from __future__ import annotations

import json
import subprocess
import sys
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


def test_a_script_runs_as_it_is_and_what_is_wrong_is_said(script: Path, capsys: pytest.CaptureFixture[str]):
    before = sys.argv[:], sys.path[:]
    assert main(["doctor", str(script), "--epochs", "3"]) == 1
    out, err = capsys.readouterr()
    assert out == "60.0 --epochs 3\n"
    assert err.startswith("TH301 error: a new gradient or value was computed, and nothing returned\n")
    assert f"({script}:10)" in err
    assert (sys.argv, sys.path) == before


def test_json(script: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["doctor", "--json", str(script)]) == 1
    out, _ = capsys.readouterr()
    said = json.loads(out.partition("\n")[2])
    assert [f["code"] for f in said["findings"]] == ["TH301"]


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
    assert capsys.readouterr().err == "tenterhook doctor: there is no file 'nowhere.py'\n"


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
    assert main(["doctor", str(script)]) == 1
    assert capsys.readouterr().out == "5 __main__\n"
