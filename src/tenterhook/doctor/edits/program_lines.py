"""Edit lines of a program outside the functions of hooks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tenterhook.doctor.edits.source import Change, LineText


def call_it(text: LineText) -> Iterator[Change]:
    """Call the method that a line only names."""
    for one in text.source.statements(text.line):
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Attribute) and one.lineno == text.line:
            yield Change(text.source.end(one), text.source.end(one), "()")


def call_the_module(text: LineText, name: str) -> Iterator[Change]:
    """Call a module instead of its method `forward`. `name` is the last part of the module's name."""
    for node in ast.walk(text.source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "forward":
            owner = node.func.value
            last = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", None)
            if last is not None and (last == name or name in (".", "")) and last != "self":
                yield Change(text.source.end(owner), text.source.end(node.func), "")


def loop_over_a_copy(text: LineText) -> Iterator[Change]:
    """Loop over a copy of each list that the loop changes."""
    for node in ast.walk(text.source.tree):
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Name):
            changed = {
                one.func.value.id
                for part in node.body
                for one in ast.walk(part)
                if isinstance(one, ast.Call)
                and isinstance(one.func, ast.Attribute)
                and one.func.attr in ("remove", "pop")
                and isinstance(one.func.value, ast.Name)
            }
            if node.iter.id in changed:
                yield text.source.instead(node.iter, f"list({node.iter.id})")
