"""Test that an exam does not change what is compiled, and that it does not blame the wrong hook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tenterhook as th
from tenterhook.doctor.findings import Findings
from tenterhook.torch_internals import compiler as dynamo
from tests.support.earlier_torch import since

# Dynamo reads .grad of non-leaf tensors. Turned into an error, that warning would stop it.
pytestmark = [pytest.mark.compiled, pytest.mark.filterwarnings("ignore")]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x).relu()


class Sum:
    def __init__(self):
        self.value = torch.zeros(())

    def __call__(self, module, args, output):
        self.value.add_(output.detach().sum())


kept: list[Any] = []


def double(module, args, output):
    return output * 2


def keep(module, args, output):
    kept.append(output.detach())


def show(module, args, output):
    print(end="")


def hook_gradient(module, args, output):
    output.register_hook(lambda grad: grad * 2)


def hook_and_keep(module, args, output):
    output.register_hook(kept.append)


HOOKS: dict[str, Callable[[], Any]] = {
    "double": lambda: double,
    "sum": Sum,
    "keep": lambda: keep,
    "show": lambda: show,
    "hook_gradient": lambda: hook_gradient,
    "hook_and_keep": lambda: hook_and_keep,
    "disabled": lambda: torch.compiler.disable(keep),
}


def inside(hook: Callable[[], Any], fullgraph: bool) -> list[nn.Module]:
    """Build ten compiled blocks of one class, each with a hook inside."""
    blocks = [Block() for _ in range(10)]
    for block in blocks:
        block.fc.register_forward_hook(hook())
        block.compile(backend="eager", fullgraph=fullgraph)
    return blocks


def on_each(hook: Callable[[], Any], fullgraph: bool) -> list[nn.Module]:
    blocks = [Block() for _ in range(10)]
    for block in blocks:
        block.register_forward_hook(hook())
        block.compile(backend="eager", fullgraph=fullgraph)
    return blocks


def backward_inside(hook: Callable[[], Any], fullgraph: bool) -> list[nn.Module]:
    blocks = inside(hook, fullgraph)
    for block in blocks:
        block.fc.register_full_backward_hook(lambda m, gi, go: None)
    return blocks


def compiled(make: Callable[..., list[nn.Module]], hook: Callable[[], Any], fullgraph: bool) -> list[Any]:
    """Return the error of a run, if any, and the frames that dynamo compiled in it."""
    torch.compiler.reset()
    kept.clear()
    last = next(reversed(dynamo.compilations()), None)
    error = None
    try:
        blocks = make(hook, fullgraph)
        for _ in range(2):
            x = torch.ones(2, 4, requires_grad=True)
            for block in blocks:
                x = block(x)
            x.sum().backward()
    except Exception as raised:
        error = type(raised).__name__
    new = dynamo.compilations(last)
    return [error, *((one.compile_id, one.co_filename, one.co_name, one.graph_op_count, one.fail_type) for one in new)]


@pytest.mark.slice(4)
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("make", [inside, on_each, backward_inside])
@pytest.mark.parametrize("name", HOOKS)
def test_the_same_is_compiled(name: str, make: Callable[..., list[nn.Module]], fullgraph: bool):
    bare = compiled(make, HOOKS[name], fullgraph)
    with th.examine():
        seen = compiled(make, HOOKS[name], fullgraph)
    assert seen == bare


def examined(run: Callable[[], object]) -> Findings:
    torch.compiler.reset()
    kept.clear()
    with th.examine() as exam:
        held = run()
    del held
    return exam.findings


def test_what_it_put_into_dynamo_is_gone_after_it():
    before = [getattr(where, name) for where, name in dynamo.dynamo_entries()]
    with th.examine():
        assert [getattr(where, name) for where, name in dynamo.dynamo_entries()] != before
    assert [getattr(where, name) for where, name in dynamo.dynamo_entries()] == before


def test_hooks_of_one_function_share_compiled_code_and_none_is_late():
    def run():
        blocks = inside(lambda: double, True)
        for block in blocks:
            block(torch.ones(2, 4)).sum().backward()
        return blocks

    assert examined(run).codes == []


def test_an_operation_that_is_not_used_is_kept_by_a_backend_that_lowers_nothing():
    calls = []

    @torch.library.custom_op("test_compiled::look", mutates_args=())
    def look(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x.clone()

    look.register_fake(lambda x: x.clone())

    def run(backend: str) -> nn.Module:
        block = Block()
        block.fc.register_forward_hook(lambda m, a, out: (look(out.detach()), None)[1])
        torch.compile(block, backend=backend)(torch.ones(2, 4)).sum().backward()
        return block

    assert (examined(lambda: run("eager")).codes, len(calls)) == ([], 1)
    assert (examined(lambda: run("aot_eager")).codes, len(calls)) == (["TH225"], 1)


def test_recompilations_for_shapes_are_nobody_s_fault():
    def run():
        block = Block()
        block.fc.register_forward_hook(double)
        fast = torch.compile(block, backend="eager", dynamic=False)
        for size in range(1, 13):
            fast(torch.ones(size, 4))
        return block

    assert examined(run).codes == []


def test_a_graph_that_the_model_breaks_is_not_the_hook_s_fault():
    class Loud(Block):
        def forward(self, x):
            x = self.fc(x)
            print(end="")
            return x.relu()

    def run():
        block = Loud()
        block.fc.register_forward_hook(double)
        torch.compile(block, backend="eager")(torch.ones(2, 4)).sum().backward()
        return block

    assert examined(run).codes == []


def test_an_early_hook_of_a_layer_that_is_not_called_is_not_late(monkeypatch: pytest.MonkeyPatch):
    class Spare(Block):
        def __init__(self):
            super().__init__()
            self.spare = nn.Linear(4, 4)

    def run():
        block = Spare()
        with monkeypatch.context() as patch:  # as in a process that has not compiled anything yet
            patch.setattr(dynamo, "compilations", lambda since=None: [])
            block.spare.register_forward_hook(double)
        torch.compile(block, backend="eager")(torch.ones(2, 4)).sum().backward()
        return block

    assert examined(run).codes == ["TH213"]


@since(11, "does not say which function a recompilation is for")
def test_few_recompilations_are_a_note():
    def run():
        block = Block()
        block.fc.register_forward_hook(keep)
        fast = torch.compile(block, backend="eager")
        for _ in range(5):
            fast(torch.ones(2, 4))
        return block

    findings = examined(run)
    assert findings.codes == ["TH515"] and findings.grave == []
    line = keep.__code__.co_firstlineno + 1
    assert findings[0].evidence == (
        f"'forward' was recompiled 4 times because test_compiled.py:{line} changes a value that the compiled code uses"
    )


def test_compiling_a_backward_is_not_a_backward():
    def run():
        block = Block()
        block.fc.weight.register_hook(lambda grad: None)
        torch.compile(block, backend="aot_eager")(torch.ones(2, 4)).sum().backward()
        return block

    torch.compiler.reset()
    with th.examine() as exam:
        held = run()
    assert exam.events.timeline.backwards == 1 and held is not None


def test_a_hook_on_every_module_that_was_gone_is_not_meant():
    def run():
        nn.modules.module.register_module_forward_hook(lambda m, a, out: None).remove()
        handle = nn.modules.module.register_module_forward_hook(lambda m, a, out: None)
        block = torch.compile(Block(), backend="eager")
        block(torch.ones(2, 4))
        handle.remove()

    assert examined(run).codes == ["TH413", "TH602", "TH602"]


def test_a_late_backward_hook_begins_with_the_code_of_another_shape():
    def run():
        block = Block()
        fast = torch.compile(block, backend="eager")
        fast(torch.ones(2, 4, requires_grad=True)).sum().backward()
        block.fc.register_full_backward_hook(lambda m, gi, go: kept.append(1))
        for size in (2, 3):
            fast(torch.ones(size, 4, requires_grad=True)).sum().backward()
        return block

    findings = examined(run)
    assert (findings.codes[0], len(kept)) == ("TH224", 1)
    assert findings[0].evidence.startswith("the backward pass ran 1 time through")


def test_a_late_hook_that_is_compiled_in_at_once_is_in_order():
    def run():
        block = Block()
        fast = torch.compile(block, backend="eager")
        fast(torch.ones(2, 4)).sum().backward()
        block.fc.register_forward_hook(double)
        torch._dynamo.reset()
        fast(torch.ones(2, 4)).sum().backward()
        return block

    assert examined(run).codes == []
