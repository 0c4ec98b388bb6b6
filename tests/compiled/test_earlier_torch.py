"""Run the code for torch 2.10 to 2.12 with the torch that is installed: CI has only one version."""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tenterhook as th
from tenterhook.rig.compiled import gradient_callbacks
from tenterhook.torch_internals import compiler, distributed
from tests.support.compiled.stack import batch, build, graphs

#: torch.compile of a block reads the .grad of its inputs
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


@pytest.fixture
def no_traced_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (gradient_callbacks, compiler):
        monkeypatch.setattr(module, "TRACES_TENSOR_HOOKS", False)


@pytest.mark.compiled
@pytest.mark.parametrize("how", ["whole", "by block"])
def test_an_autograd_function_calls_gradient_hooks_in_the_order_of_the_rigs(no_traced_hooks: None, how: str) -> None:
    model, run = build(how)
    by_hand = copy.deepcopy(model)
    rigs = [
        th.attach(model, th.Hook(f"hook{n}", on="blocks.*.up", at="grad_output", do=do))
        for n, do in enumerate((th.clip_value(0.01), th.scale(5.0), th.clip_value(0.02)))
    ]
    run(batch(0)).sum().backward()

    def clip_scale_clip(module: nn.Module, args: Any, output: Tensor) -> None:
        output.register_hook(lambda grad: (grad.clamp(-0.01, 0.01) * 5.0).clamp(-0.02, 0.02))

    for block in by_hand.blocks:
        block._compiled_call_impl = None
        block.up.register_forward_hook(clip_scale_clip)
    by_hand(batch(0)).sum().backward()
    for ours, theirs in zip(model.parameters(), by_hand.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)
    assert graphs() == (1 if how == "whole" else 2)
    assert [rig.ledger[f"hook{n}"].fired for n, rig in enumerate(rigs)] == [2, 2, 2]


@pytest.mark.compiled
def test_backward_passes_of_compiled_code_end_steps(no_traced_hooks: None) -> None:
    model, run = build("whole")
    rig = th.attach(model, th.Hook("look", on="blocks.*.up", at="output", do=th.stats()))
    for _ in range(3):
        run(batch(0)).sum().backward()
    assert "3 steps" in repr(rig)


@dataclass(frozen=True)
class Pair:
    first: Tensor
    second: Tensor


class Named(OrderedDict[str, Tensor]):
    """A mapping with a class of its own, as the outputs of transformers are."""


@pytest.mark.compiled
@pytest.mark.parametrize("earlier", [False, True])
def test_outputs_that_are_rebuilt_keep_their_class(monkeypatch: pytest.MonkeyPatch, earlier: bool) -> None:
    if earlier:
        monkeypatch.setattr(compiler, "TRACES_TENSOR_HOOKS", False)

    class Outputs(nn.Module):
        def forward(self, x: Tensor) -> tuple[Pair, OrderedDict[str, Tensor], Named]:
            return Pair(x + 1.0, x + 2.0), OrderedDict(third=x + 3.0), Named(fourth=x + 4.0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.outputs = Outputs()

        def forward(self, x: Tensor) -> Any:
            return self.outputs(x)

    model = Model()
    th.attach(model, th.Hook("half", on="outputs", at="output", do=th.scale(0.5)))
    pair, mapping, named = torch.compile(model, backend="aot_eager", fullgraph=True)(torch.ones(2))
    assert (type(pair), type(mapping), type(named)) == (Pair, OrderedDict, Named)
    values = (pair.first, pair.second, mapping["third"], named["fourth"])
    for value, expected in zip(values, (1.0, 1.5, 2.0, 2.5), strict=True):
        assert torch.equal(value, torch.full((2,), expected))


@pytest.mark.parametrize("at", ["input", "output"])
def test_hooks_are_inserted_in_the_order_in_which_pytorch_calls_them(at: str) -> None:
    model, _ = build("eager")
    first = th.attach(model, th.Hook("first", on="**", at=at, do=th.scale(0.5)))
    th.attach(model, th.Hook("second", on="blocks.*", at=at, do=th.scale(2.0)))
    first.mute("first")
    first.unmute("first")
    assert max(len(module._forward_pre_hooks) for module in model.modules()) > 1
    for module in model.modules():
        assert list(dict.keys(module._forward_pre_hooks)) == list(module._forward_pre_hooks)
        assert list(dict.keys(module._forward_hooks)) == list(module._forward_hooks)


def test_the_texts_of_torch_2_10_about_breaks_and_recompilations_are_read() -> None:
    class Frame:
        filename, lineno, name = "/model.py", 7, "forward"

    reason = "Graph break in user code at /model.py:7\nGraph break encountered:\nUnsupported call:\n\nprint\nmore"
    assert compiler.graph_break((), {"reason": reason, "user_stack": [Frame]}) == (
        "print", [("/model.py", 7, "forward")]
    )  # fmt: skip
    text = "0/0: tensor 'x' size mismatch at index 0. expected 2, actual 3  # /model.py:7 in forward"
    assert compiler.frames_in(text) == [("/model.py", 7, "forward")]


def test_a_state_of_fsdp_has_one_group_or_none() -> None:
    class State:
        def __init__(self, group: object) -> None:
            self._fsdp_param_group = group

    assert distributed._groups_of(State("group")) == ["group"]
    assert distributed._groups_of(State(None)) == []


def test_shapes_are_inferred_under_the_earlier_name() -> None:
    def _shape_inference() -> bool:
        return distributed.infers_shapes()

    import torch.distributed.pipelining  # noqa: F401

    assert _shape_inference()
    assert not distributed.infers_shapes()
