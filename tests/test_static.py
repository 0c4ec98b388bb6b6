"""Check that the package contains no code that could turn data into executable code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tenterhook

PACKAGE = Path(tenterhook.__file__).parent
#: packages that run the program of the user. They read no data of others, and only higher layers import them.
OWN_PROGRAM = ("doctor", "adapters", "program.py")
#: `imports` imports modules that the user names on the command line. `random_state` uses NumPy's random generator, if
#: the program has imported NumPy.
OWN_FILES = ("cli/imports.py", "rig/rerun/random_state.py")
FILES = sorted(
    path for path in PACKAGE.rglob("*.py")
    if path.relative_to(PACKAGE).parts[0] not in OWN_PROGRAM and path.relative_to(PACKAGE).as_posix() not in OWN_FILES
)  # fmt: skip

#: every top-level package that any file imports, at the top or inside a function
IMPORTS = {
    "__future__", "argparse", "asyncio", "atexit", "base64", "binascii", "bisect", "collections", "concurrent",
    "contextlib", "copy", "dataclasses", "datetime", "difflib", "duckdb", "enum", "errno", "fcntl", "functools",
    "gc", "gzip", "hashlib", "html", "inspect", "itertools", "json", "logging", "math", "mlflow", "msgspec", "numpy",
    "os", "pathlib", "pyarrow", "re", "secrets", "signal", "socket", "starlette", "stat", "statistics", "sys",
    "sysconfig", "tenterhook", "threading", "time", "tomllib", "torch", "types", "typing", "uvicorn", "warnings",
    "weakref", "webbrowser", "zlib",
}  # fmt: skip

#: builtins that compile text to code or look objects up by name; they must not even be passed as arguments
NAMES = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "__builtins__",
    "__loader__",
    "globals",
    "locals",
    "breakpoint",
    "input",
}

#: forbidden functions of modules, by the real name of the module, even if it is imported under another name
PATHS = {
    "numpy.load", "numpy.fromfile", "numpy.memmap", "numpy.save",
    "torch.load", "torch.save", "torch.hub", "torch.jit", "torch.package", "torch.serialization", "torch.from_file",
    "torch.classes", "torch.export.load", "torch.distributed.checkpoint.load", "torch.distributed.checkpoint.save",
    "torch.utils.cpp_extension", "msgspec.yaml", "sys.modules", "sys.path", "sys.meta_path", "types.FunctionType",
    "types.LambdaType", "os.system", "os.popen",
}  # fmt: skip

#: forbidden attributes of any object: templates that are filled with data, and access to the interpreter
ATTRIBUTES = {
    "format", "format_map", "vformat", "attrgetter", "methodcaller", "import_module", "load_module", "find_spec",
    "exec_module", "__subclasses__", "__globals__", "__builtins__", "__loader__", "__reduce__", "__reduce_ex__",
    "__setstate__", "write_text", "write_bytes",
}  # fmt: skip

#: methods that getattr, setattr and delattr call
UNDER = {"__getattribute__", "__getattr__", "__setattr__", "__delattr__"}

#: prefixes of forbidden functions, such as os.execv, os.spawnl and os.posix_spawn
STARTS = ("os.exec", "os.spawn", "os.posix_spawn")

REGULAR = {"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer", "template"}

#: functions that look up an attribute by a name that is not a literal; the names come from the source code
BY_NAME = {
    "__init__.py: __getattr__", "record/__init__.py: __getattr__", "diff/sentence.py: _limits",
    "actions/definition.py: convert", "errors.py: located", "plan/files.py: _make_hook",
    "plan/files.py: _as_json", "plan/hook.py: __post_init__", "plan/hook.py: __repr__",
    "rig/runtime/tensor_tree.py: _mapped",
    "rig/saved/loader.py: _compare_surroundings", "rig/saved/loader.py: _keep",
    "torch_internals/compiler.py: shallow_copy", "torch_internals/distributed.py: _is_split",
    "torch_internals/hook_dicts.py: count_hooks", "torch_internals/hook_dicts.py: drop_empty_tensor_hooks",
    "torch_internals/hook_dicts.py: forget_hook", "torch_internals/hook_dicts.py: gets_kwargs",
    "torch_internals/hook_dicts.py: hooks_in",
    "torch_internals/capabilities.py: _look_up", "torch_internals/capabilities.py: look_for",
    "torch_internals/hook_dicts.py: optimizer_hooks",
    "torch_internals/hook_dicts.py: reinstall_tensor_hooks", "torch_internals/hook_dicts.py: tensor_hooks",
}  # fmt: skip
#: functions that may use globals()
OWN_NAMES = {"__init__.py: __getattr__", "record/__init__.py: __getattr__"}


class Gate(ast.NodeVisitor):
    """Check one file. `found` lists violations, `by_name` lists functions that look attributes up by name."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.found: list[str] = []
        self.imports: set[str] = set()
        self.by_name: set[str] = set()
        self.own_names: set[str] = set()
        self._within = "module"
        #: local name to dotted path
        self._known: dict[str, str] = {}
        self.visit(ast.parse(text))

    def _say(self, node: ast.AST, what: str) -> None:
        self.found.append(f"{self.file}:{getattr(node, 'lineno', 0)}: {what}")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        before, self._within = self._within, node.name
        self.generic_visit(node)
        self._within = before

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            top = alias.name.partition(".")[0]
            self._imported(node, alias.name)
            self._known[alias.asname or top] = alias.name if alias.asname else top

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or "" if not node.level else "tenterhook"
        for alias in node.names:
            if alias.name == "*":
                self._say(node, f"from {module} import *")
            self._imported(node, f"{module}.{alias.name}")
            self._known[alias.asname or alias.name] = f"{module}.{alias.name}"

    def _imported(self, node: ast.AST, path: str) -> None:
        top = path.partition(".")[0]
        self.imports.add(top)
        if top not in IMPORTS:
            self._say(node, f"imports {top}")
        self._check_path(node, path)
        if path.startswith("re.") and path.removeprefix("re.") in REGULAR:
            self._say(node, f"{path} is imported under a name of its own")

    def visit_Name(self, node: ast.Name) -> None:
        place = f"{self.file}: {self._within}"
        if node.id == "globals" and place in OWN_NAMES:
            self.own_names.add(place)
        elif node.id in NAMES:
            self._say(node, node.id)
        elif node.id in ("getattr", "setattr", "delattr"):
            self._say(node, f"{node.id} is passed on")  # the name in a call is not visited
        self._check_path(node, self._known.get(node.id, ""))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in ATTRIBUTES:
            self._say(node, f".{node.attr}")
        path = self._path(node)
        self._check_path(node, path)
        if path.startswith("re.") and path.removeprefix("re.") in REGULAR:
            self._say(node, f"{path} is passed on")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        path, first = self._path(node.func), node.args[0] if node.args else None
        if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr", "delattr", "hasattr"):
            if len(node.args) < 2 or not _is_text(node.args[1]):
                self.by_name.add(f"{self.file}: {self._within}")
        elif path.startswith("re.") and path.removeprefix("re.") in REGULAR:
            if first is None or not _is_text(first):
                self._say(node, f"{path} without a literal pattern")
        else:
            if isinstance(node.func, ast.Attribute) and node.func.attr in UNDER and not any(map(_is_text, node.args)):
                self.by_name.add(f"{self.file}: {self._within}")
            self.visit(node.func)
        for part in (*node.args, *node.keywords):
            self.visit(part)

    def _path(self, node: ast.AST) -> str:
        """Return the dotted path of an expression, or an empty string if its first name was not imported."""
        if isinstance(node, ast.Name):
            return self._known.get(node.id, "")
        if isinstance(node, ast.Attribute):
            before = self._path(node.value)
            return f"{before}.{node.attr}" if before else ""
        return ""

    def _check_path(self, node: ast.AST, path: str) -> None:
        if any(path == p or path.startswith(f"{p}.") for p in PATHS) or path.startswith(STARTS):
            self._say(node, path)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


@pytest.fixture(scope="module")
def gates() -> list[Gate]:
    return [Gate(path.relative_to(PACKAGE).as_posix(), path.read_text()) for path in FILES]


def test_nothing_dangerous_is_in_the_package(gates: list[Gate]):
    assert len(gates) > 30
    assert [said for gate in gates for said in gate.found] == []


def test_the_imports_are_the_ones_on_the_list(gates: list[Gate]):
    assert set().union(*(gate.imports for gate in gates)) == IMPORTS


def test_attributes_are_looked_up_by_name_only_where_the_names_are_the_sources_own(gates: list[Gate]):
    assert set().union(*(gate.by_name for gate in gates)) == BY_NAME
    assert set().union(*(gate.own_names for gate in gates)) == OWN_NAMES


#: snippets that break each rule
VIOLATIONS = r"""
eval(x) | exec(x) | compile(x, "f", "exec") | __import__(x) | f = eval | run(exec) | globals()[x] | locals()[x]
__builtins__["eval"] | breakpoint() | [f(x) for f in (eval,)] | from tenterhook.plan import *
import numpy as np; np.load(x)
import numpy as np; np.load(x) | import torch; torch.load(x)
import torch as t; t.load(x) | from torch import load | import torch; f = torch.load
from torch import load as read | import torch; torch.hub.load(x) | from torch.hub import load | import torch.jit
import torch; torch.save(x, y) | import torch; torch.jit.load(x) | from torch import serialization
from torch.utils.cpp_extension import load | import torch.utils.cpp_extension as c; c.load(x)
from torch.distributed.checkpoint import load | import msgspec; msgspec.yaml.decode(x) | from msgspec import yaml
import os; os.system(x) | import os; os.popen(x) | from os import system | import os; os.execv(x, y)
import os as o; o.spawnl(x) | import sys; sys.modules[x] | from sys import modules | import types; types.FunctionType(x)
x.format(y) | "{}".format(y) | x.format_map(y) | str.format(x, y) | op.attrgetter(x) | x.import_module(y)
x.__subclasses__() | f.__globals__[x] | o.methodcaller(x) | path.write_text(x) | f = x.format
import re; re.compile(x) | import re; re.match(f"{x}", y) | import re; re.sub("a" + x, "", y)
import re as r; r.search(x, y) | from re import compile | from re import search as s; s(x, y)
import re; f = re.compile; f(x) | import re; map(re.compile, x) | import re; re.compile(pattern=x)
import re; re.compile("%s" % x) | import re; re.fullmatch(",".join(x), y)
functools.reduce(getattr, x.split("."), y) | f = getattr | map(setattr, x, y, z)
"""

FOREIGN = (
    "pickle", "cloudpickle", "dill", "marshal", "shelve", "importlib", "yaml", "subprocess", "operator", "ctypes",
    "builtins", "code", "runpy", "pkgutil", "joblib", "tempfile", "shutil", "urllib", "requests",
    "string", "_pickle", "copyreg", "multiprocessing",
)  # fmt: skip

BY_DATA = """
getattr(x, y) | getattr(x, f"{y}") | setattr(x, y, 1) | delattr(x, y) | getattr(x, "a" + y) | getattr(*x)
hasattr(x, y)
object.__setattr__(x, y, 1) | x.__getattribute__(y) | object.__getattribute__(x, y)
"""

HARMLESS = r"""
import re; re.compile("a|b") | import re; re.sub(r"a" "b", x, y) | getattr(x, "name", None) | self._compile()
x.load(y)
import json; json.loads(x) | import torch; torch.empty(3) | f"{x!r}" | from tenterhook.plan.files import load; load(x)
import torch; torch.compile(x) | import os; os.environ | x.evaluate() | "%s" % x | object.__setattr__(x, "a", y)
"""


def _snippets(text: str) -> list[str]:
    return [one.strip().replace("; ", "\n") for line in text.strip().splitlines() for one in line.split(" | ")]


@pytest.mark.parametrize("text", _snippets(VIOLATIONS))
def test_the_gate_sees_every_rule_broken(text: str):
    assert Gate("bad.py", text).found


@pytest.mark.parametrize("module", FOREIGN)
def test_the_gate_sees_every_foreign_import(module: str):
    for text in (f"import {module}", f"import {module}.x as y", f"from {module} import x", f"from {module}.y import x"):
        assert Gate("bad.py", f"def f():\n    {text}").found


@pytest.mark.parametrize("text", _snippets(BY_DATA))
def test_the_gate_sees_an_attribute_looked_up_by_data(text: str):
    assert Gate("bad.py", f"def f():\n    {text}").by_name == {"bad.py: f"}


@pytest.mark.parametrize("text", _snippets(HARMLESS))
def test_the_gate_lets_the_harmless_pass(text: str):
    gate = Gate("good.py", text)
    assert gate.found == [] and gate.by_name == set()
