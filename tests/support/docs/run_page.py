"""Run the blocks of a page, and compare their output with the output in the page.

python run_page.py README.md            # compare
python run_page.py --write README.md    # write the output into the page

A `python` block is run, and the `text` block after it is its output. A block whose fence names a file, as in
`python train.py`, becomes that file. In a `console` block, a shell runs the text after `$ `, and the lines after it are
the output on both streams. A line of three dots stands for any number of lines.
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
    #: the number of the line after the opening fence
    line: int
    text: str

    @property
    def runs(self) -> bool:
        return self.kind.partition(" ")[0] in ("python", "console")

    @property
    def end(self) -> int:
        """Return the number of the line with the closing fence."""
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


#: called with a block, its `text` block, and a list of command, actual output and output in the page; the command is
#: empty for a python block
OnOutput = Callable[[Block, Block | None, list[tuple[str, str, str]]], None]


def follow(page: str, name: str, on_output: OnOutput) -> None:
    """Run a page from top to bottom in an empty folder."""
    names: dict[str, object] = {"__name__": "page"}
    found = list(blocks(page))
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place), importing(place):
        for block, following in zip(found, [*found[1:], None]):
            kind, _, file = block.kind.partition(" ")
            if file:
                Path(file).write_text(block.text)
            elif kind == "console":
                on_output(block, None, [(command, shell(command), listed) for command, listed in commands(block)])
            elif kind == "python":
                # Blank lines before the code make an error report the line of the page.
                code = compile("\n" * (block.line - 1) + block.text, name, "exec", dont_inherit=True)
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(code, names)
                text = following if following is not None and following.kind == "text" else None
                on_output(block, text, [("", printed.getvalue(), text.text if text is not None else "")])


@contextlib.contextmanager
def importing(place: str) -> Iterator[None]:
    """Make the files of the page importable while the block runs, and unload them afterwards."""
    before = set(sys.modules)
    sys.path.insert(0, place)
    try:
        yield
    finally:
        sys.path.remove(place)
        for name in set(sys.modules) - before:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(place):
                del sys.modules[name]


def _as_in_python_3_11(printed: str) -> str:
    """Return an output with the words that Python 3.11 uses in its errors. The pages show them."""
    # Python 3.14 raises another error, with the address of the function.
    newer = r"PicklingError: (Can't pickle local object) <function (\S+) at \w+>"
    printed = re.sub(newer, r"AttributeError: \1 '\2'", printed)
    return printed.replace("Can't get local object", "Can't pickle local object")


def without_gloo(printed: str) -> str:
    """Return an output without the lines that Gloo of torch 2.10 prints, from several threads at once."""
    return re.sub(r"^.*is connected to.* peer ranks.*\n", "", printed, flags=re.MULTILINE)


def run(page: str, name: str) -> None:
    def compare(block: Block, text: Block | None, outcome: list[tuple[str, str, str]]) -> None:
        for command, printed, listed in outcome:
            printed = without_gloo(printed)
            right = same(printed, listed) if command else _as_in_python_3_11(printed) == listed
            shown = f"$ {command}\n{printed}\n" if command else ""
            assert right, f"{name}:{block.line}: {shown}the output differs from the output in the page"

    follow(page, name, compare)


def rewritten(page: str, name: str) -> str:
    lines, edits = page.splitlines(), []

    def write(block: Block, text: Block | None, outcome: list[tuple[str, str, str]]) -> None:
        if block.kind == "console":
            new = [
                line
                for command, printed, listed in outcome
                for line in (
                    f"$ {command}",
                    *(listed.splitlines() if same(printed, listed) else shortened(printed, listed)),
                )
            ]
            edits.append((block.line - 1, block.end - 1, new))
        elif text is not None:
            edits.append((text.line - 1, text.end - 1, outcome[0][1].splitlines()))
        elif outcome[0][1]:
            edits.append((block.end, block.end, ["", "```text", *outcome[0][1].splitlines(), "```"]))

    follow(page, name, write)
    for start, end, new in reversed(edits):
        lines[start:end] = new
    return "\n".join(lines) + "\n"


def shortened(printed: str, listed: str) -> list[str]:
    """Leave out what torchrun reports about a failed rank, if the page leaves it out with three dots."""
    lines = printed.splitlines()
    if listed.splitlines()[-1:] != ["..."]:
        return lines
    end = next((i for i, line in enumerate(lines) if re.match(r"[WE]\d{4} |Traceback ", line)), len(lines))
    return [*lines[:end], "..."]


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Yield each command and its output in the page."""
    for part in f"\n{block.text}".split("\n$ ")[1:]:
        command, _, listed = part.partition("\n")
        yield command, listed.rstrip("\n")


def shell(command: str) -> str:
    programs = os.environ.get("PAGE_PROGRAMS", str(Path(sys.executable).parent))
    where = {**os.environ, "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100"}
    done = subprocess.run(
        command, shell=True, env=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300
    )
    # On a slow machine, a store reports that it is still writing.
    return re.sub(r"^tenterhook: (closing|writing the last) .*\n", "", done.stdout, flags=re.MULTILINE).rstrip("\n")


def same(printed: str, listed: str) -> bool:
    # A store puts as many batches into a file as wait for it, and names the file after the first and the last one.
    printed, listed = (re.sub(r"\b(part-\d+-\d+-\d+)-\d+\.parquet", r"\1.parquet", text) for text in (printed, listed))
    pattern = r"\n".join(r"(?s:.*)" if line.strip() == "..." else re.escape(line) for line in listed.split("\n"))
    return re.fullmatch(pattern, printed) is not None


if __name__ == "__main__":
    given = sys.argv[1:]
    write = "--write" in given
    for page in [Path(one) for one in given if one != "--write"]:
        if write:
            page.write_text(rewritten(page.read_text(), str(page)))
        else:
            run(page.read_text(), str(page))
            print(f"{page}: every example prints the output in the page")
