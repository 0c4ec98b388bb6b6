"""Test that the python blocks of every page run from top to bottom and print the output in the page."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tenterhook.actions import DEFAULT
from tests.support.docs.run_page import blocks, rewritten, run
from tests.support.earlier_torch import since
from tests.support.warm_python import PLAIN, warm_python

ROOT = Path(__file__).parents[2]


_REASONS = "does not say which function a recompilation is for"
#: pages that an earlier torch cannot run, or about which it prints other words
LATER = {
    "TH512": since(11, "shows a placement in other words"),
    "TH226": since(11, "refuses tensor hooks in compiled code"),
    "TH508": since(13, "warns in other words"),
    **dict.fromkeys(("TH515", "TH517", "TH518"), since(11, _REASONS)),
}


def pages() -> Iterator[object]:
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if any(block.runs for block in blocks(page.read_text())):
            yield pytest.param(page, id=str(page.relative_to(ROOT)), marks=LATER.get(page.stem, ()))


@pytest.mark.pages
@pytest.mark.parametrize("page", pages())
def test_page(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The process of a reader has only the actions of this page.
    monkeypatch.setattr(DEFAULT, "_definitions", {})
    text = page.read_text()
    python = warm_python(*PLAIN, "torch.distributed.run") if " torchrun --" in text else warm_python()
    monkeypatch.setenv("PAGE_PROGRAMS", str(Path(python).parent))
    with torch.random.fork_rng():
        run(text, str(page.relative_to(ROOT)))


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
    with pytest.raises(AssertionError, match="the output differs from the output in the page"):
        run(page, "page")


def test_an_error_names_the_line_of_the_page() -> None:
    with pytest.raises(ZeroDivisionError) as error:
        run("# title\n\n" + block("python", "x = 1\n1 / 0"), "a page")
    assert (str(error.traceback[-1].path), error.traceback[-1].lineno + 1) == ("a page", 5)


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


def test_a_shortened_output_stays_short() -> None:
    page = block("console", "$ printf 'new\\nW1116 torchrun\\nTraceback x\\n'\nold\n...")
    assert rewritten(page, "page") == block("console", "$ printf 'new\\nW1116 torchrun\\nTraceback x\\n'\nnew\n...")
