"""Check that every public name has a full docstring, whose example runs, and is in the reference."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tenterhook as th
from tenterhook.actions.definition import Definition
from tests.support.needs import needs

ROOT = Path(__file__).parents[2]
#: public names that `tenterhook` itself does not export: a trainer's adapter imports the trainer
ADAPTERS = [
    "tenterhook.adapters.lightning.RigCallback",
    "tenterhook.adapters.transformers.RigCallback",
    "tenterhook.adapters.accelerate.keep",
]
#: classes that users meet as a result, never by their constructor
RESULTS = ["tenterhook.rig.ledger.Ledger", "tenterhook.rig.ledger.Account", "tenterhook.rig.runtime.attached_hook.Site"]
NAMES = [*(f"tenterhook.{name}" for name in sorted(th.__all__)), *ADAPTERS, *RESULTS]
SECTIONS = ("Args", "Returns", "Yields", "Raises", "Example", "Attributes")


def find(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    if name in ADAPTERS:
        needs(module.rpartition(".")[2])
    return getattr(importlib.import_module(module), attribute)


def sections(doc: str) -> dict[str, str]:
    """Split a docstring in Google's style into its sections; the text before them has the key ''."""
    parts = re.split(rf"^({'|'.join(SECTIONS)}):\n", inspect.cleandoc(doc), flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2]))}


def documented_parameters(args: str) -> list[str]:
    return re.findall(r"^ {4}\*{0,2}(\w+)(?: \([^)]*\))?:", args, flags=re.MULTILINE)


def own_methods(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that a class of ours defines or inherits from a class of ours."""
    for name in dir(kind):
        found = inspect.getattr_static(kind, name)
        owner = next(c for c in kind.__mro__ if name in vars(c))
        if name.startswith("_") or not owner.__module__.startswith("tenterhook"):
            continue
        if isinstance(found, staticmethod | classmethod):
            found = found.__func__
        if inspect.isfunction(found) or isinstance(found, property):
            yield name, found


def members_in_the_reference(name: str) -> set[str]:
    """Return the members that the reference selects for a class; an empty set if it shows all of them."""
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    found = re.search(rf"^\.\. autoclass:: {re.escape(name)}\n   :members:(.*)$", pages, flags=re.MULTILINE)
    return set(re.findall(r"\w+", found[1])) if found else set()


def problems(fn: Any, *, example: bool, skip: int = 0) -> Iterator[str]:
    """Yield what the docstring of a function lacks."""
    if not fn.__doc__:
        yield "has no docstring"
        return
    found = sections(fn.__doc__)
    signature = inspect.signature(fn)
    wanted = [p.name for p in signature.parameters.values()][skip:]
    given = documented_parameters(found.get("Args", ""))
    if wanted != given:
        yield f"documents the parameters {given}, and takes {wanted}"
    nothing = signature.return_annotation in (None, "None", "Never", inspect.Signature.empty)
    if not nothing and not {"Returns", "Yields"} & set(found):
        yield "does not document what it returns"
    if example and ">>>" not in found.get("Example", ""):
        yield "has no example"


@pytest.mark.parametrize("name", NAMES)
def test_the_docstring_is_full(name: str) -> None:
    thing = find(name)
    found = [f"{name}: {problem}" for problem in check(name, thing)]
    assert not found, "\n".join(found)


def check(name: str, thing: Any) -> Iterator[str]:
    if isinstance(thing, Definition):
        parts = sections(thing.__doc__ or "")
        if (given := documented_parameters(parts.get("Args", ""))) != list(thing.__signature__.parameters):
            yield f"documents the parameters {given}, and takes {list(thing.__signature__.parameters)}"
        yield from (f"has no section {one}" for one in ("Returns", "Example") if one not in parts)
    elif inspect.isclass(thing) and issubclass(thing, Exception):
        if len((thing.__doc__ or "").split()) < 12:
            yield "does not explain when it is raised and what to do"
    elif inspect.isclass(thing):
        yield from of_class(name, thing)
    else:
        yield from problems(thing, example=True)


def of_class(name: str, kind: type) -> Iterator[str]:
    parts = sections(kind.__doc__ or "")
    if len(parts[""].split()) < 6:
        yield "does not explain what it is"
    if name not in RESULTS and name not in ADAPTERS and ">>>" not in parts.get("Example", ""):
        yield "has no example"
    if "Args" in parts:
        given, wanted = documented_parameters(parts["Args"]), list(inspect.signature(kind).parameters)
        if given != wanted:
            yield f"documents the parameters {given}, and takes {wanted}"
    if name in ADAPTERS:
        return  # its methods are called by the trainer
    shown = members_in_the_reference(name)
    for method, found in own_methods(kind):
        if shown and method not in shown:
            continue
        if isinstance(found, property):
            if not found.__doc__:
                yield f"{method} has no docstring"
            continue
        skip = 0 if isinstance(inspect.getattr_static(kind, method), staticmethod) else 1
        yield from (f"{method} {problem}" for problem in problems(found, example=False, skip=skip))


def examples(name: str) -> dict[str, str]:
    """Return the docstrings that have an example: that of a public name, and those of its methods."""
    thing = find(name)
    docs = {name: thing.__doc__}
    if inspect.isclass(thing) and name not in ADAPTERS:
        docs |= {f"{name}.{method}": found.__doc__ for method, found in own_methods(thing)}
    return {key: doc for key, doc in docs.items() if doc and ">>>" in doc}


# The names are the parameters, not the examples: collecting them would import every trainer.
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # an example of DCP runs in one process
@pytest.mark.parametrize("name", NAMES)
def test_the_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    printed: list[str] = []
    for key, doc in examples(name).items():
        test = doctest.DocTestParser().get_doctest(doc, {}, key, None, 0)
        with torch.random.fork_rng():
            doctest.DocTestRunner(optionflags=flags, verbose=False).run(test, out=printed.append)
    assert not printed, "".join(printed)


def test_every_public_name_is_in_the_reference_once() -> None:
    pages = "".join(page.read_text() for page in sorted((ROOT / "docs" / "reference").glob("*.md")))
    listed = re.findall(r"^\.\. auto(?:function|class|exception):: (\S+)$", pages, flags=re.MULTILINE)
    assert sorted(listed) == sorted(NAMES)
