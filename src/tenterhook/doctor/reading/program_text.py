"""Read the text of a program's files."""

from __future__ import annotations

import ast
import re
import threading
from functools import lru_cache
from pathlib import Path

#: Python 3.11 counts the depth of the trees that all threads build in one number, and fails if it does not fit
_PARSING = threading.Lock()


def syntax_tree(path: str) -> ast.Module | None:
    """Return the syntax tree of a file, or None if the file cannot be read."""
    try:
        with _PARSING:
            return ast.parse(Path(path).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError, SystemError):
        return None  # SystemError: the program parses something in another thread


@lru_cache(maxsize=64)
def reverses(path: str) -> bool:
    """Return True if a file contains code that reverses a list."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return any(word in text for word in ("[::-1]", "reversed(", ".reverse()", "insert(0,", "appendleft"))


@lru_cache(maxsize=64)
def first_items(path: str) -> frozenset[str]:
    """Return the variables and attributes of which a file reads the first item, as `kept` in `self.kept[0]`."""
    try:
        return frozenset(re.findall(r"(\w+)\[0\]", Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return frozenset()


def node_hooks(path: str) -> list[int]:
    """List the lines of a file that register a hook on a node of the graph, such as `y.grad_fn.register_hook(fn)`."""
    tree = syntax_tree(path)
    if tree is None:
        return []
    nodes = {"grad_fn", "next_functions"}
    named = {
        target.id
        for one in ast.walk(tree)
        if isinstance(one, ast.Assign) and nodes & {a.attr for a in ast.walk(one.value) if isinstance(a, ast.Attribute)}
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    found = []
    for one in ast.walk(tree):
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in _ON_NODES:
            owner = one.func.value
            attributes = {a.attr for a in ast.walk(owner) if isinstance(a, ast.Attribute)}
            names = {a.id for a in ast.walk(owner) if isinstance(a, ast.Name)}
            if nodes & attributes or named & names or one.func.attr == "register_prehook":
                found.append(one.lineno)
    return found


#: the register functions of a node
_ON_NODES = ("register_hook", "register_prehook")


def missing_calls(path: str) -> list[int]:
    """List the lines of a file that consist of `handle.remove`, without parentheses."""
    tree = syntax_tree(path)
    if tree is None:
        return []
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Attribute) and node.value.attr == "remove"
    ]


def evaluations(path: str) -> list[int]:
    """List the lines of a file that call `eval` or `exec` with a first argument that is not a constant."""
    tree = syntax_tree(path)
    if tree is None:
        return []
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("eval", "exec")
        and node.args
        and not isinstance(node.args[0], ast.Constant)
    ]
