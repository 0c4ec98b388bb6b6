"""Test the layers that a rig writes for viewers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import tenterhook as th
from tenterhook.rig.files.model_file import in_order


class TwoPaths(nn.Module):
    """Runs its layers in another order than that in which they are defined."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(3, 1)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(3, 3), nn.ReLU()) for _ in range(2))
        self.first = nn.Linear(2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


RAN = [".", "first", "blocks", "blocks.0", "blocks.0.0", "blocks.0.1", "blocks.1", "blocks.1.0", "blocks.1.1", "last"]


def train(path: Path, *hooks: th.Hook, model: nn.Module | None = None) -> th.Run:
    model = model or TwoPaths()
    with th.attach(model, list(hooks), sinks=th.Store(path)):
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
    return th.open_run(path)


def test_layers_have_the_order_in_which_they_ran(tmp_path: Path) -> None:
    run = train(tmp_path / "run", th.Hook("out", on="**", at="output", do=th.stats()))
    assert [layer.name for layer in run.layers] == RAN
    assert run.layers[1].type == "Linear"
    assert run.layers[1].parameters == ["first.weight", "first.bias"]


def test_layers_have_the_order_of_definition_if_no_hook_is_in_the_forward_pass(tmp_path: Path) -> None:
    model = TwoPaths()
    run = train(tmp_path / "run", th.Hook("g", on="**", at="grad", do=th.stats()), model=model)
    assert [layer.name for layer in run.layers] == [name or "." for name, _ in model.named_modules()]


def test_the_order_is_known_after_the_first_step(tmp_path: Path) -> None:
    model = TwoPaths()
    rig = th.attach(model, th.Hook("out", on="**", at="output", do=th.stats()), sinks=th.Store(tmp_path / "run"))
    with rig.step():
        model(torch.ones(1, 2)).sum().backward()
    rig.flush()
    assert [layer.name for layer in th.open_run(tmp_path / "run").layers] == RAN
    rig.detach()


def test_a_layer_that_was_added_later_is_written_at_the_end(tmp_path: Path) -> None:
    model = TwoPaths()
    rig = th.attach(model, th.Hook("out", on="**", at="output", do=th.stats()), sinks=th.Store(tmp_path / "run"))
    with rig.step():
        model(torch.ones(1, 2)).sum().backward()
    model.blocks.append(nn.Sequential(nn.Linear(3, 3)))
    with rig.step():
        model(torch.ones(1, 2)).sum().backward()
    rig.detach()
    assert "blocks.2.0" in [layer.name for layer in th.open_run(tmp_path / "run").layers]


def test_the_setup_says_what_computes_the_bits(tmp_path: Path) -> None:
    model = nn.Linear(2, 1, dtype=torch.float64)
    model.unused = nn.Parameter(torch.ones(1, dtype=torch.float16))
    with th.attach(model, th.Hook("g", on="weight", at="grad", do=th.stats()), sinks=th.Store(tmp_path / "run")):
        model(torch.ones(1, 2, dtype=torch.float64)).sum().backward()
    setup = th.open_run(tmp_path / "run").setup
    assert setup is not None
    assert (setup.torch, setup.device, setup.ranks) == (torch.__version__, "cpu", 1)
    assert (setup.sharded, setup.compiled, setup.dtype) == (False, False, "float16")
    assert setup.rounding == f"{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"


def test_the_setup_says_if_images_are_stored_with_channels_last(tmp_path: Path) -> None:
    model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    with th.attach(model, th.Hook("g", on="weight", at="grad", do=th.stats()), sinks=th.Store(tmp_path / "run")):
        model(torch.ones(1, 3, 5, 5)).sum().backward()
    setup = th.open_run(tmp_path / "run").setup
    assert setup is not None and setup.rounding.endswith(" threads, channels last")


@pytest.mark.parametrize(
    ("ran", "order"),
    [
        ({}, [".", "a", "a.x", "b", "b.x", "c"]),
        ({"b.x": 0, "a.x": 1}, [".", "b", "b.x", "c", "a", "a.x"]),
        ({"c": 0, "b.x": 1, "a.x": 2}, [".", "c", "b", "b.x", "a", "a.x"]),
        # a module that did not run follows the module before it, and stays in its block
        ({"b": 0}, [".", "a", "a.x", "b", "b.x", "c"]),
    ],
)
def test_modules_of_one_block_stay_together(ran: dict[str, int], order: list[str]) -> None:
    assert in_order([".", "a", "a.x", "b", "b.x", "c"], ran) == order
