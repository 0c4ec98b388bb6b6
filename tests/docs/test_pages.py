"""Every python block of every page runs, from the top of its page down, and prints what the page says."""

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tenterhook.actions import DEFAULT

HOUSE = Path(__file__).parents[2]


@dataclass(frozen=True)
class Block:
    kind: str
    #: of the line after the fence
    line: int
    text: str


def blocks(page: str) -> Iterator[Block]:
    kind, start, lines = None, 0, []
    for number, line in enumerate(page.splitlines(), 1):
        if not line.startswith("```"):
            lines.append(line)
        elif kind is None:
            kind, start, lines = line.removeprefix("```").strip(), number + 1, []
        else:
            yield Block(kind, start, "".join(f"{one}\n" for one in lines))
            kind = None
    if kind is not None:
        raise ValueError(f"the block that begins at line {start} has no end")


def pages() -> list[Path]:
    found = [HOUSE / "README.md", *sorted((HOUSE / "docs").rglob("*.md"))]
    return [page for page in found if any(block.kind == "python" for block in blocks(page.read_text()))]


def run(page: str, name: str) -> None:
    names: dict[str, object] = {"__name__": "page"}
    found = list(blocks(page))
    for block, following in zip(found, [*found[1:], None]):
        if block.kind != "python":
            continue
        # Blank lines before it, so that an error names the line of the page.
        code = compile("\n" * (block.line - 1) + block.text, name, "exec", dont_inherit=True)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        said = following.text if following is not None and following.kind == "text" else ""
        assert printed.getvalue() == said, f"{name}:{block.line}: what it prints is not what the page says"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(HOUSE)))
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
