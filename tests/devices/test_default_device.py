"""Test that the default device of the program does not matter, because each tensor that is created names its device."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import tenterhook
import tenterhook as th

PACKAGE = Path(tenterhook.__file__).parent
#: functions of torch that create a tensor on the default device
FACTORIES = {
    "arange", "as_tensor", "empty", "full", "linspace", "ones", "rand", "randn", "randperm", "scalar_tensor", "tensor",
    "zeros",
}  # fmt: skip


def without_a_device(text: str) -> Iterator[int]:
    """Yield the lines that create a tensor without naming its device."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in FACTORIES:
            of_torch = isinstance(node.func.value, ast.Name) and node.func.value.id == "torch"
            if of_torch and not any(keyword.arg == "device" for keyword in node.keywords):
                yield node.lineno


def test_every_tensor_names_its_device() -> None:
    files = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
    assert [f"{name}:{line}" for name, text in files.items() for line in without_a_device(text)] == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("torch.zeros(3)", [1]),
        ("x = 1\ntorch.tensor([x], dtype=torch.int64)", [2]),
        ("torch.zeros(3, device='cpu')", []),
        ("x.new_zeros(3)", []),
    ],
)
def test_a_tensor_without_a_device_is_found(text: str, lines: list[int]) -> None:
    assert list(without_a_device(text)) == lines


@pytest.mark.compiled
def test_compiled_hooks_fire_with_any_default_device() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(3, 4)
    model.compile(backend="aot_eager")
    rig = th.attach(model, [th.Hook("seen", on="**", at="output", do=th.stats())])
    with torch.device("meta"):
        model(x).sum().backward()
        rig.detach()
        rig = th.attach(model, [th.Hook("half", on="0", at="grad_output", do=th.scale(0.5))])
        model(x).sum().backward()
    assert rig.ledger["half"].fired == 1


def test_the_store_writes_with_any_default_device(tmp_path: Path) -> None:
    """Test the thread of the program too, which writes a flight report when an error ends the program."""
    model = nn.Linear(2, 1)
    with torch.device("meta"):
        flight = th.Flight(tmp_path / "flight")
        rig = th.attach(
            model, th.Hook("grads", on="**", at="grad", do=th.stats()), sinks=[flight, th.Store(tmp_path / "run")]
        )
        model(torch.ones(1, 2, device="cpu")).sum().backward()
        rig.state_dict()
        flight.fail("an error")
        rig.detach()
    assert len(flight.reports) == 1
    assert th.open_run(tmp_path / "run").curve("grads", "weight", "norm").values == pytest.approx([2**0.5])
