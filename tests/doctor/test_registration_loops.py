"""Test what the doctor reads from the source code of a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenterhook.doctor.reading.bytecode import adds, first_item
from tenterhook.doctor.reading.program_text import node_hooks, reverses
from tenterhook.doctor.reading.registration_loops import RegistrationLoop, registration_loops


def loops(tmp_path: Path, text: str) -> list[RegistrationLoop]:
    path = tmp_path / "program.py"
    path.write_text(text)
    return registration_loops(str(path))


def test_a_loop_with_a_test_is_found(tmp_path: Path):
    text = """
for name, m in model.named_modules():
    if isinstance(m, nn.Linear) and "head" not in name:
        m.register_forward_hook(
            fn
        )
"""
    (loop,) = loops(tmp_path, text)
    assert (loop.first, loop.last, loop.over, loop.by_class) == (4, 6, "named_modules", True)
    assert loop.test == "isinstance(m, nn.Linear) and 'head' not in name"
    assert loop.contains(f"{tmp_path / 'program.py'}:5") and not loop.contains(f"{tmp_path / 'program.py'}:7")


def test_a_comprehension_is_found(tmp_path: Path):
    text = "handles = [p.register_hook(fn) for n, p in model.named_parameters() if n.startswith('x')]\n"
    (loop,) = loops(tmp_path, text)
    assert (loop.over, loop.test, loop.by_class) == ("named_parameters", "n.startswith('x')", False)


@pytest.mark.parametrize(
    "text",
    [
        "for m in model.modules():\n    m.register_forward_hook(fn)\n",
        "for m in layers:\n    if m.training:\n        m.register_forward_hook(fn)\n",
        "for m in model.modules():\n    if m.training:\n        pass\n    else:\n        m.register_forward_hook(fn)\n",
        "def f():\n    for m in model.modules():\n        if m.training:\n            m.register_forward_hook(fn)\n",
        "this is not Python",
    ],
    ids=["no test", "not over modules", "else", "a function that is not called", "no program"],
)
def test_other_loops_are_not(tmp_path: Path, text: str):
    assert loops(tmp_path, text) == []


def test_a_function_that_is_called_is_read(tmp_path: Path):
    loop = "def f():\n    for m in model.modules():\n        if m.training:\n            m.register_forward_hook(fn)\n"
    assert len(loops(tmp_path, loop + "f()\n")) == 1


def test_hooks_on_nodes_are_found(tmp_path: Path):
    path = tmp_path / "program.py"
    path.write_text(
        "y.grad_fn.register_hook(fn)\nnode = p.expand_as(p).grad_fn.next_functions[0][0]\nnode.register_hook(fn)\n"
        "y.register_hook(fn)\nother.register_prehook(fn)\n"
    )
    assert node_hooks(str(path)) == [1, 3, 5]
    assert node_hooks(str(tmp_path / "absent.py")) == []


def takes_the_first(module, args, output):
    output[0].add_(1)


def asks_for_the_class(module, args, output):
    return output[0] if isinstance(output, tuple) else output


def takes_the_second(module, args, output):
    return output[1]


def test_the_first_item_of_an_argument_is_found():
    assert first_item(takes_the_first.__code__, "output") == "output[0]"
    assert first_item(asks_for_the_class.__code__, "output") is None
    assert first_item(takes_the_second.__code__, "output") is None


def test_additions_in_place_are_found():
    assert adds(takes_the_first.__code__) and not adds(takes_the_second.__code__)


def test_a_file_that_reverses_a_list_is_found(tmp_path: Path):
    path = tmp_path / "program.py"
    path.write_text("names = names[::-1]\n")
    assert reverses(str(path)) and not reverses(str(tmp_path / "absent.py"))
