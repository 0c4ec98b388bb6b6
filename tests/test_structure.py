"""Check the structure of the package from its source: no import cycles, small packages, small classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tenterhook

PACKAGE = Path(tenterhook.__file__).parent
MOST_FILES, MOST_LINES, MOST_LINES_OF_A_FILE, MOST_ATTRIBUTES = 13, 2000, 420, 14

#: classes of rig that have more than MOST_ATTRIBUTES instance attributes, and the reason
LARGE = {"Site": "a row of the ledger: each attribute is a column that is used when a hook fires"}


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("tenterhook", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(tree: ast.Module, known: frozenset[str]) -> Iterator[str]:
    """Yield every module of the package that a file imports: at the top, for types only, or inside a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in known:
                    yield alias.name
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports must be absolute"
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                if module in known:
                    yield module
                elif node.module in known:
                    yield node.module


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of files that import each other, directly or through others (Tarjan's algorithm)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(one: str) -> None:
        number[one] = low[one] = len(number)
        stack.append(one)
        for other in sorted(graph[one]):
            if other not in number:
                visit(other)
                low[one] = min(low[one], low[other])
            elif other in stack:
                low[one] = min(low[one], number[other])
        if low[one] == number[one]:
            group = []
            while not group or group[-1] != one:
                group.append(stack.pop())
            if len(group) > 1 or one in graph[one]:
                found.append(sorted(group))

    for one in graph:
        if one not in number:
            visit(one)
    return found


def graph_of(files: dict[str, str]) -> dict[str, set[str]]:
    known = frozenset(files)
    return {name: set(imports(ast.parse(text), known)) for name, text in files.items()}


def test_no_files_import_each_other() -> None:
    assert circles(graph_of({name: path.read_text() for name, path in modules().items()})) == []


@pytest.mark.parametrize("back", [
    "from p.a import x",
    "import p.a",
    "from p import a",
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import x",
    "def f():\n    from p.a import x",
])  # fmt: skip
def test_a_circle_is_found(back: str) -> None:
    assert circles(graph_of({"p": "", "p.a": "from p.b import y", "p.b": back})) == [["p.a", "p.b"]]
    assert circles(graph_of({"p": "", "p.a": "from p.b import y", "p.b": "import torch"})) == []


def packages() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in modules().values():
        found.setdefault(path.parent.relative_to(PACKAGE.parent).as_posix(), []).append(path)
    return found


def test_packages_are_small() -> None:
    sizes = {name: (len(files), sum(map(lines, files))) for name, files in packages().items()}
    assert {name: size for name, size in sizes.items() if size[0] > MOST_FILES or size[1] > MOST_LINES} == {}


def test_files_are_small() -> None:
    assert {n: lines(p) for n, p in modules().items() if lines(p) > MOST_LINES_OF_A_FILE} == {}


def lines(path: Path) -> int:
    """Count the lines of a file without docstrings, which are long where users read them."""
    text = path.read_text()
    scopes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    with_docstring = (
        node.body[0] for node in ast.walk(ast.parse(text)) if isinstance(node, scopes) and ast.get_docstring(node)
    )
    return len(text.splitlines()) - sum(doc.end_lineno - doc.lineno + 1 for doc in with_docstring)


def attributes(node: ast.ClassDef) -> set[str]:
    """Return every attribute that the methods of a class set on `self`, or that its fields declare."""
    found = {
        target.attr
        for method in node.body
        if isinstance(method, ast.FunctionDef)
        for target in ast.walk(method)
        if isinstance(target, ast.Attribute)
        and isinstance(target.ctx, ast.Store)
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
    }
    decorated = any("dataclass" in ast.unparse(one) for one in node.decorator_list)
    based = any(ast.unparse(base) in ("NamedTuple", "msgspec.Struct") for base in node.bases)
    if decorated or based:
        found |= {f.target.id for f in node.body if isinstance(f, ast.AnnAssign) and isinstance(f.target, ast.Name)}
    return found


def test_classes_of_the_rig_carry_little() -> None:
    classes = {
        node.name: node
        for name, path in modules().items()
        if name.startswith("tenterhook.rig")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }

    def everything(node: ast.ClassDef) -> set[str]:
        bases = (classes[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in classes)
        return attributes(node).union(*map(everything, bases))

    sizes = {name: len(everything(node)) for name, node in classes.items()}
    assert len(sizes) > 50
    assert {name for name, size in sizes.items() if size > MOST_ATTRIBUTES} == LARGE.keys(), sizes
