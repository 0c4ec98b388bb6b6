"""Every python block of every page runs, from the top of its page down, and prints what the page says."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tenterhook.actions import DEFAULT
from tests.docs.run_page import blocks, rewritten, run

HOUSE = Path(__file__).parents[2]


def pages() -> Iterator[object]:
    for page in (HOUSE / "README.md", *sorted((HOUSE / "docs").rglob("*.md"))):
        if any(block.runs for block in blocks(page.read_text())):
            yield pytest.param(page, id=str(page.relative_to(HOUSE)))


@pytest.mark.slow
@pytest.mark.parametrize("page", pages())
def test_page(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A reader's process has only the actions of this page.
    monkeypatch.setattr(DEFAULT, "_definitions", {})
    with torch.random.fork_rng():
        run(page.read_text(), str(page.relative_to(HOUSE)))


def block(kind: str, text: str) -> str:
    return f"```{kind}\n{text}\n```\n"


@pytest.mark.parametrize(
    "page",
    [
        block("python", "x = 1") + block("python", "print(x)") + block("text", "1"),
        block("python", "print('a')\nprint('b')") + "words\n" + block("text", "a\nb"),
        block("toml", "not = python") + block("bash", "exit 1") + block("json", "{"),
        block("text", "a drawing") + block("python", "x = 1"),
        block("python a.py", "print(1 + 1)") + block("console", "$ python a.py\n2\n$ true\n$ echo x\nx"),
        block("console", "$ printf 'a\\nb\\nc\\n'\na\n...\nc"),
    ],
)
def test_a_page_that_tells_the_truth(page: str) -> None:
    run(page, "page")


@pytest.mark.parametrize(
    "page",
    [
        block("python", "print(1)"),
        block("python", "print(1)") + block("json", "1"),
        block("python", "print(1)") + block("text", "2"),
        block("python", "print(1)") + block("text", "1 "),
        block("python", "x = 1") + block("text", "1"),
        block("console", "$ echo x\ny"),
        block("console", "$ echo x; echo y >&2\nx"),
        block("console", "$ true\n...\nz"),
    ],
)
def test_a_page_that_does_not(page: str) -> None:
    with pytest.raises(AssertionError, match="is not what the page says"):
        run(page, "page")


def test_an_error_names_the_line_of_the_page() -> None:
    with pytest.raises(ZeroDivisionError) as told:
        run("# title\n\n" + block("python", "x = 1\n1 / 0"), "a page")
    assert (str(told.traceback[-1].path), told.traceback[-1].lineno + 1) == ("a page", 5)


def test_a_block_without_an_end_is_an_error() -> None:
    with pytest.raises(ValueError, match="line 2 has no end"):
        list(blocks("```python\nx = 1\n"))


def test_a_page_is_rewritten_with_what_is_printed() -> None:
    page = block("python", "print(2)") + "words\n" + block("python", "print(3)") + block("text", "1") + block(
        "console", "$ echo x\ny\n$ echo z"
    )  # fmt: skip
    with_it = rewritten(page, "page")
    assert with_it == block("python", "print(2)") + "\n" + block("text", "2") + "words\n" + block(
        "python", "print(3)") + block("text", "3") + block("console", "$ echo x\nx\n$ echo z\nz")  # fmt: skip
    run(with_it, "page")
