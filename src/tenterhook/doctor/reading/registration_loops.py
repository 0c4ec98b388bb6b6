"""Find the loops of a program that register a hook on each module or parameter that passes a test."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tenterhook.doctor.reading.program_text import syntax_tree

_LISTED = frozenset(["modules", "named_modules", "children", "named_children", "parameters", "named_parameters"])


@dataclass(frozen=True, slots=True)
class RegistrationLoop:
    """A loop over the parts of a model that registers hooks on some of them."""

    file: str
    #: the first and the last line of the registration
    first: int
    last: int
    #: the method that lists the parts, such as `named_modules`
    over: str
    #: the test that a part has to pass, as it is written
    test: str
    #: True if the test asks for the class of the part
    by_class: bool

    @property
    def place(self) -> str:
        return f"{self.file}:{self.first}"

    def contains(self, place: str) -> bool:
        """Return True if a `file:line` is a line of the registration."""
        file, _, line = place.rpartition(":")
        return file == self.file and line.isdigit() and self.first <= int(line) <= self.last


def registration_loops(path: str) -> list[RegistrationLoop]:
    """List the loops of a file, except those in functions that the file does not call."""
    tree = syntax_tree(path)
    if tree is None:
        return []
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    used |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return list(_found(tree, path, used))


def _found(node: ast.AST, path: str, used: set[str]) -> Iterator[RegistrationLoop]:
    for child in ast.iter_child_nodes(node):
        special = isinstance(child, ast.FunctionDef) and child.name.startswith("__")
        if isinstance(child, ast.FunctionDef) and child.name not in used and not special:
            continue
        over: str | None = None
        tests: list[ast.expr] = []
        body: list[ast.AST] = []
        if isinstance(child, ast.For):
            over, body = _listing(child.iter), list(child.body)
        elif isinstance(child, ast.ListComp | ast.SetComp | ast.GeneratorExp) and len(child.generators) == 1:
            one = child.generators[0]
            over, tests, body = _listing(one.iter), list(one.ifs), [child.elt]
        elif isinstance(child, ast.DictComp) and len(child.generators) == 1:
            one = child.generators[0]
            over, tests, body = _listing(one.iter), list(one.ifs), [child.value]
        if over is not None:
            for part in body:
                yield from _registrations(part, path, over, tests)
        else:
            yield from _found(child, path, used)


def _listing(iterable: ast.expr) -> str | None:
    calls = (node for node in ast.walk(iterable) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))
    return next((call.func.attr for call in calls if call.func.attr in _LISTED), None)  # type: ignore[attr-defined]


def _registrations(node: ast.AST, path: str, over: str, tests: list[ast.expr]) -> Iterator[RegistrationLoop]:
    if isinstance(node, ast.If):
        for part in node.body:
            yield from _registrations(part, path, over, [*tests, node.test])
        for part in node.orelse:
            yield from _registrations(part, path, over, [])
        return
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    if named and node.func.attr.startswith("register_") and node.func.attr.endswith("hook") and tests:  # type: ignore[attr-defined]
        text = " and ".join(ast.unparse(test) for test in tests)
        by_class = any(isinstance(one, ast.Name) and one.id == "isinstance" for test in tests for one in ast.walk(test))
        yield RegistrationLoop(path, node.lineno, node.end_lineno or node.lineno, over, text, by_class)  # type: ignore[attr-defined]
        return
    for child in ast.iter_child_nodes(node):
        yield from _registrations(child, path, over, tests)
