"""Every example runs to its end, and so does the tutorial.

The tutorial's outputs are stored in it: `jupyter execute --inplace docs/tutorial.ipynb` makes them anew.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
HOUSE = Path(__file__).parents[2]
EXAMPLES = sorted(path.name for path in (HOUSE / "examples").glob("*.py"))
TWO_RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def run(name: str, place: Path, *before: str) -> None:
    # In an empty folder: what an example leaves behind is seen.
    command = [sys.executable, *before, str(HOUSE / "examples" / name)]
    done = subprocess.run(command, cwd=place, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip(), "it tells nothing"
    assert not list(place.iterdir()), "it leaves something behind"


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "ddp.py"])
def test_example(name: str, tmp_path: Path) -> None:
    run(name, tmp_path)


@pytest.mark.ranks
def test_example_on_two_ranks(tmp_path: Path) -> None:
    run("ddp.py", tmp_path, *TWO_RANKS)


def test_every_example_is_in_the_table() -> None:
    table = (HOUSE / "examples" / "README.md").read_text()
    assert EXAMPLES and all(f"[{name}]({name})" in table for name in EXAMPLES)


def test_tutorial(tmp_path: Path) -> None:
    import nbclient
    import nbformat

    notebook = nbformat.read(HOUSE / "docs" / "tutorial.ipynb", as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert any(cell.outputs for cell in code), "its outputs are stored"
    assert not any(output.output_type == "error" for cell in code for output in cell.outputs)
    # An error in a cell is raised here, with its traceback.
    nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
