"""Test that every example and the tutorial run without an error.

The tutorial contains its outputs. `jupyter execute --inplace docs/tutorial.ipynb` refreshes them.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.needs import needs
from tests.support.warm_python import warm_python

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))
TWO_RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def run(name: str, place: Path, *before: str) -> None:
    # The folder is empty, so every file that an example leaves behind is found.
    command = [warm_python(), *before, str(ROOT / "examples" / name)]
    done = subprocess.run(command, cwd=place, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip(), "the example prints nothing"
    assert not list(place.iterdir()), "the example leaves files behind"


@pytest.mark.pages
@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "ddp.py"])
def test_example(name: str, tmp_path: Path) -> None:
    run(name, tmp_path)


@pytest.mark.ranks
def test_example_on_two_ranks(tmp_path: Path) -> None:
    run("ddp.py", tmp_path, *TWO_RANKS)


def test_every_example_is_in_the_table() -> None:
    table = (ROOT / "examples" / "README.md").read_text()
    assert EXAMPLES and all(f"[{name}]({name})" in table for name in EXAMPLES)


@pytest.mark.pages
def test_tutorial(tmp_path: Path) -> None:
    nbclient, nbformat = needs("nbclient"), needs("nbformat")

    notebook = nbformat.read(ROOT / "docs" / "tutorial.ipynb", as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert any(cell.outputs for cell in code), "the notebook was saved without its outputs"
    assert not any(output.output_type == "error" for cell in code for output in cell.outputs)
    # This raises the error of a cell, with its traceback.
    nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
