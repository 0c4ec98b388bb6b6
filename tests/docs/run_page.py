"""Run the blocks of a page and compare what they print with what the page says.

python run_page.py README.md            # compare
python run_page.py --write README.md    # put what is printed into the page

A `python` block is run, and what it prints is the `text` block after it. A block whose fence names a file, as in
`python train.py`, is that file. In a `console` block what follows `$ ` is run by a shell, and the lines after it are
what it prints, on both streams; a line of three dots stands for any lines.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Block:
    kind: str
    #: of the line after the fence
    line: int
    text: str

    @property
    def runs(self) -> bool:
        return self.kind.partition(" ")[0] in ("python", "console")

    @property
    def end(self) -> int:
        """The line of the closing fence."""
        return self.line + self.text.count("\n")


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


#: of a block: what it printed, and what the page says; of a console block, for each of its commands
Told = Callable[[Block, Block | None, list[tuple[str, str, str]]], None]


def follow(page: str, name: str, told: Told) -> None:
    """Run it from the top down, in an empty folder, which is the page's own."""
    names: dict[str, object] = {"__name__": "page"}
    found = list(blocks(page))
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place), importing(place):
        for block, following in zip(found, [*found[1:], None]):
            kind, _, file = block.kind.partition(" ")
            if file:
                Path(file).write_text(block.text)
            elif kind == "console":
                told(block, None, [(command, shell(command), said) for command, said in commands(block)])
            elif kind == "python":
                # Blank lines before it, so that an error names the line of the page.
                code = compile("\n" * (block.line - 1) + block.text, name, "exec", dont_inherit=True)
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(code, names)
                text = following if following is not None and following.kind == "text" else None
                told(block, text, [("", printed.getvalue(), text.text if text is not None else "")])


@contextlib.contextmanager
def importing(place: str) -> Iterator[None]:
    """The page's own files can be imported, and are forgotten after it."""
    before = set(sys.modules)
    sys.path.insert(0, place)
    try:
        yield
    finally:
        sys.path.remove(place)
        for name in set(sys.modules) - before:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(place):
                del sys.modules[name]


def run(page: str, name: str) -> None:
    def compare(block: Block, text: Block | None, outcome: list[tuple[str, str, str]]) -> None:
        for command, printed, said in outcome:
            right = same(printed, said) if command else printed == said
            shown = f"$ {command}\n{printed}\n" if command else ""
            assert right, f"{name}:{block.line}: {shown}what it prints is not what the page says"

    follow(page, name, compare)


def rewritten(page: str, name: str) -> str:
    lines, edits = page.splitlines(), []

    def write(block: Block, text: Block | None, outcome: list[tuple[str, str, str]]) -> None:
        if block.kind == "console":
            new = [line for command, printed, said in outcome
                   for line in [f"$ {command}", *(said if same(printed, said) else printed).splitlines()]]  # fmt: skip
            edits.append((block.line - 1, block.end - 1, new))
        elif text is not None:
            edits.append((text.line - 1, text.end - 1, outcome[0][1].splitlines()))
        elif outcome[0][1]:
            edits.append((block.end, block.end, ["", "```text", *outcome[0][1].splitlines(), "```"]))

    follow(page, name, write)
    for start, end, new in reversed(edits):
        lines[start:end] = new
    return "\n".join(lines) + "\n"


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Each command, and what it is said to print."""
    for part in f"\n{block.text}".split("\n$ ")[1:]:
        command, _, said = part.partition("\n")
        yield command, said.rstrip("\n")


def shell(command: str) -> str:
    where = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100"}
    done = subprocess.run(
        command, shell=True, env=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300
    )
    return done.stdout.rstrip("\n")


def same(printed: str, said: str) -> bool:
    pattern = r"\n".join(r"(?s:.*)" if line.strip() == "..." else re.escape(line) for line in said.split("\n"))
    return re.fullmatch(pattern, printed) is not None


if __name__ == "__main__":
    given = sys.argv[1:]
    write = "--write" in given
    for page in [Path(one) for one in given if one != "--write"]:
        if write:
            page.write_text(rewritten(page.read_text(), str(page)))
        else:
            run(page.read_text(), str(page))
            print(f"{page}: every example prints what it says")
