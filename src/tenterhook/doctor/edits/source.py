"""Find a hook's function in the text of a program, and write a change of the text as a unified diff."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from types import CodeType
from typing import NamedTuple

from tenterhook.doctor.findings import from_here
from tenterhook.doctor.reading.program_text import syntax_tree

Function = ast.FunctionDef | ast.Lambda


class Change(NamedTuple):
    """Replace the characters from `begin` to `end` with `text`."""

    begin: int
    end: int
    text: str


@dataclass(frozen=True)
class Source:
    """Holds the text of a file and its syntax tree."""

    path: str
    text: str
    tree: ast.Module

    @classmethod
    def of(cls, path: str) -> Source | None:
        """Read a file, or return None if it cannot be read."""
        tree = syntax_tree(path)
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, ValueError):
            return None
        # The tree counts bytes, and a change counts characters.
        return cls(path, text, tree) if tree is not None and text.isascii() else None

    def at(self, line: int, column: int = 0) -> int:
        """Return the index of a place in the text. The first line has the number 1."""
        return sum(len(one) for one in self.text.splitlines(keepends=True)[: line - 1]) + column

    def begin(self, node: ast.expr | ast.stmt) -> int:
        return self.at(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt) -> int:
        return self.at(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def written(self, node: ast.expr | ast.stmt) -> str:
        """Return the text of a node."""
        return self.text[self.begin(node) : self.end(node)]

    def instead(self, node: ast.expr | ast.stmt, text: str) -> Change:
        """Replace a node."""
        return Change(self.begin(node), self.end(node), text)

    def before(self, statement: ast.stmt, text: str) -> Change:
        """Insert a statement before another one."""
        begin = self.begin(statement)
        return Change(begin, begin, f"{text}\n{' ' * statement.col_offset}")

    def after(self, statement: ast.stmt, text: str) -> Change:
        """Insert a statement after another one."""
        end = self.end(statement)
        return Change(end, end, f"\n{' ' * statement.col_offset}{text}")

    def function(self, code: CodeType) -> Function | None:
        """Return the function with this code, or None if there is no such function or there are several."""
        found = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef | ast.Lambda)
            and (node.name if isinstance(node, ast.FunctionDef) else "<lambda>") == code.co_name
            and _first_line(node) == code.co_firstlineno
        ]
        return found[0] if len(found) == 1 else None

    def statements(self, line: int) -> Iterator[ast.stmt]:
        """Yield the statements that contain a line, the outer ones first."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
                yield node

    def diff(self, changes: Iterable[Change]) -> str:
        """Return the unified diff of the changes, which `patch -p0` and `git apply -p0` apply."""
        text = self.text
        for change in sorted(set(changes), reverse=True):
            text = text[: change.begin] + change.text + text[change.end :]
        try:
            ast.parse(text)
        except SyntaxError:
            return ""
        name = from_here(self.path)
        lines = unified_diff(self.text.splitlines(keepends=True), text.splitlines(keepends=True), name, name)
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


@dataclass(frozen=True)
class LineText:
    """Names a line of a program, or 0 for no line."""

    source: Source
    line: int


def _first_line(node: Function) -> int:
    """Return the first line of a function, as its code object counts it."""
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return min([node.lineno, *(one.lineno for one in decorators)])
