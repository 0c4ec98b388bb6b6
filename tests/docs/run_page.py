"""Run the python blocks of a page and compare what they print with what the page says.

python run_page.py README.md
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


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


if __name__ == "__main__":
    for page in sys.argv[1:]:
        run(Path(page).read_text(), page)
        print(f"{page}: every example prints what it says")
