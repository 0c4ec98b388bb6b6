"""A change to a rig takes effect at the next call of a model that was compiled before, for every shape."""

from __future__ import annotations

import gc
import threading
import warnings
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.utils.checkpoint import checkpoint

import tenterhook as th
from tenterhook.torch_internals import compiler as dynamo
from tests.support.compiled.stack import Stack, batch, build, graphs

#: torch.compile of a block reads the .grad of its inputs
pytestmark = [
    pytest.mark.compiled,
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]

HALF = th.Hook("half", on="blocks.*.up", at="output", do=th.scale(0.5))
TURN = th.Hook("turn", on="blocks.1.down", at="grad_output", do=th.reverse())
LOOK = th.Hook("look", on="blocks.0.down", at="output", do=th.stats())


def train(model: Stack, run: Any, steps: int) -> tuple[list[Any], th.Rig, dict[int, int]]:
    """Train, add hooks at step 10, remove one at step 20, mute two at step 30, and unmute one at step 36.

    Return the results of each step, the rig, and the number of graphs after each step.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, th.Hook("final", on="**", at="grad_final", do=th.clip_value(1.0)), optimizer=optimizer)
    seen: list[Any] = []
    made: dict[int, int] = {}
    for step in range(steps):
        if step == 10:
            for hook in (HALF, TURN, LOOK):
                rig.add(hook)
        elif step == 20:
            rig.remove("half")
        elif step == 30:
            rig.mute("turn")
            rig.mute("look")
        elif step == 36:
            rig.unmute("turn")
        optimizer.zero_grad()
        loss = run(batch(step)).square().mean()
        loss.backward()
        optimizer.step()
        values = {id: rig.values(id) for id in rig.ledger}
        seen.append((loss.item(), values, {id: account.fired for id, account in rig.ledger.items()}))
        made[step] = graphs()
    seen.append([p.detach().clone() for p in model.parameters()])
    return seen, rig, made


@pytest.mark.slice(3)
@pytest.mark.parametrize("how", ["whole", "by block", "function"])
def test_added_removed_and_muted_as_in_eager(how: str):
    eager, _, _ = train(*build("eager"), 40)
    model, run = build(how)
    compiled, rig, made = train(model, run, 40)
    assert eager[:-1] == compiled[:-1]
    assert all(map(torch.equal, eager[-1], compiled[-1]))
    assert not counters["graph_break"]
    before, after = made[9], made[11]
    dropped = rig.ledger.graphs.dropped
    assert 0 < dropped == before <= 4
    assert after > before, "both shapes must be compiled again"
    assert made[39] == made[12] == after, "removing, muting and unmuting must not compile again"
    assert rig.ledger.graphs.compiled == after - before
    (told,) = [finding for finding in th.check(rig) if finding.code == "TH112"]
    assert told.evidence == f"{dropped} graphs that were compiled without the rig's hooks had to be compiled again"
    counts = f"{after - before} compiled with graph callbacks, {dropped} dropped because hooks changed"
    assert f"graphs: {counts}" in str(rig)


def test_a_change_of_one_instance_is_not_missed_by_a_graph_of_another():
    """Check that a graph of one block is not used for another block that has hooks."""
    model, run = build("by block")
    run(batch(0))
    rig = th.attach(model, th.Hook("look", on="blocks.1.up", at="output", do=th.stats()))
    run(batch(0))
    assert rig.ledger["look"]["blocks.1.up"].fired == 1
    teacher = Stack()
    for block in teacher.blocks:
        block.compile(backend="aot_eager", fullgraph=True)
    teacher(batch(0))
    run(batch(0))
    assert rig.ledger["look"]["blocks.1.up"].fired == 2


def test_code_compiled_by_another_thread_checks_for_hooks():
    model, run = build("whole")
    _, teach = build("whole")
    rig = th.attach(model, HALF)
    thread = threading.Thread(target=lambda: teach(batch(0)))
    thread.start()
    thread.join()
    run(batch(0))
    assert rig.ledger["half"].fired == 2


def test_a_module_replaced_under_a_compiled_function_is_reported():
    model, run = build("function")
    rig = th.attach(model, HALF)
    run(batch(0))
    model.blocks[0].up = torch.nn.Linear(4, 8)
    replaced = "a part of the model was replaced, and this forward pass was compiled without"
    with pytest.warns(RuntimeWarning, match=replaced):
        run(batch(0))
    fired = rig.ledger["half"].fired
    run(batch(0))
    assert rig.ledger["half"].fired == fired + 2


def test_a_method_that_calls_its_own_module():
    class Twice(Stack):
        def twice(self, x: torch.Tensor) -> torch.Tensor:
            return self(self(x))

    model = Twice()
    run = torch.compile(model.twice, backend="aot_eager", fullgraph=True)
    bare = run(batch(0))
    rig = th.attach(model, th.Hook("half", on=".", at="output", do=th.scale(0.5)))
    assert not torch.equal(run(batch(0)), bare)
    assert rig.ledger["half"].fired == 2


def test_a_hook_that_is_due_in_some_steps_leaves_the_graph_as_it_is():
    model, run = build("whole")
    hook = th.Hook("look", on="**.up", at="output", do=th.stats(), when=th.When(every=3, start=2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(run, hook, optimizer=optimizer)
    for _ in range(8):
        run(batch(0)).sum().backward()
        optimizer.step()
    assert rig.ledger["look"].fired == 2 * len([step for step in range(8) if hook.when.due(step)])
    assert graphs() == 1


def test_compiled_after_it_was_attached_while_nothing_was_due():
    """Check that only the first graph lacks a graph callback, and that there is no third graph."""
    model = Stack()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(
        model, th.Hook("look", on="**.up", at="output", do=th.stats(), when=th.When(every=2, start=1)),
        optimizer=optimizer,
    )  # fmt: skip
    run = torch.compile(model, backend="aot_eager", fullgraph=True)
    for _ in range(6):
        run(batch(0)).sum().backward()
        optimizer.step()
    assert rig.ledger["look"].fired == 2 * rig.ledger["look"].due == 6
    assert graphs() == 2


def test_detaching_leaves_nothing_in_the_graph():
    model, run = build("whole")
    bare = run(batch(0))
    rig = th.attach(model, HALF)
    assert not torch.equal(run(batch(0)), bare)
    rig.detach()
    assert torch.equal(run(batch(0)), bare)
    assert not th.inventory(model)
    assert rig.ledger.graphs.compiled == 0


def test_a_graph_that_is_freed_while_the_model_is_compiled():
    """Free the graph of a checkpoint after detaching, while the compiler relies on the hooks that the graph needs."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    rig = th.attach(model, th.Hook("half", on="**", at="output", do=th.scale(0.5)))
    graph = [checkpoint(model, batch(0), use_reentrant=False)]
    rig.detach()
    assert th.inventory(model)

    def backend(traced: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        graph.clear()
        gc.collect()
        return traced.forward

    torch.compiler.reset()
    run = torch.compile(model, backend=backend)
    bare = torch.nn.functional.linear(batch(0), model[0].weight, model[0].bias)
    bare = torch.nn.functional.linear(bare, model[1].weight, model[1].bias)
    assert torch.equal(run(batch(0)), bare)
    assert not graph
    gc.collect()
    assert not th.inventory(model)
    assert torch.equal(run(batch(0)), bare)


def test_the_compiler_looks_for_hooks_only_while_a_rig_is_attached():
    config = torch._dynamo.config
    assert config.skip_nnmodule_hook_guards
    with th.attach(Stack(), HALF), th.attach(Stack(), LOOK):
        assert not config.skip_nnmodule_hook_guards
    assert config.skip_nnmodule_hook_guards
    model = Stack()
    th.attach(model, HALF)
    assert not config.skip_nnmodule_hook_guards
    del model
    gc.collect()
    assert config.skip_nnmodule_hook_guards


def test_other_compiled_code_is_not_dropped():
    other = torch.compile(lambda x: torch.tanh(x) * 2, backend="aot_eager")
    other(batch(0))
    model, run = build("whole")
    run(batch(0))
    th.attach(model, HALF)
    run(batch(0))
    made = graphs()
    other(batch(0))
    assert graphs() == made


def test_the_cost_of_hooks_is_reported_before_they_are_attached():
    model, run = build("by block")
    run(batch(0))
    plan = th.Plan([HALF, LOOK, th.Hook("final", on="**", at="grad", do=th.stats())])
    half, look = th.check(model, plan)
    assert (half.code, half.severity, half.hook) == ("TH112", "note", "half")
    assert half.evidence == (
        "compiled code runs the hook on 2 targets through graph callbacks, without a graph break; each callback "
        "copies its tensor; 2 graphs without the hook will be dropped and compiled again at the next call"
    )
    assert look.evidence == (
        "compiled code runs the hook on 1 target through graph callbacks, without a graph break; 1 of 2 compiled "
        "modules of the same class have the hook and are compiled separately; 2 graphs without the hook will be "
        "dropped and compiled again at the next call"
    )
    assert graphs() == len([g for code in dynamo.compiled_codes() for g in dynamo.graphs_of(code)]) == 2
    assert not th.check(Stack(), th.Plan([th.Hook("final", on="**", at="grad", do=th.stats())]))


class Blocks(torch.nn.Sequential):
    """Linear layers. torch 2.15 traces the root's own hooks into the graph if the root is a plain nn.Sequential."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self:
            x = block(x)
        return x


def blocks_in(container: type[torch.nn.Sequential]) -> tuple[torch.nn.Sequential, th.Rig]:
    """Return a compiled model that was called once, and its rig."""
    model = container(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    model.compile(backend="aot_eager")
    rig = th.attach(model, th.Hook("look", on="*", at="input", do=th.stats()))
    model(batch(0)[..., :4]).sum().backward()
    return model, rig


def test_a_block_that_gets_the_name_of_a_deleted_one_keeps_its_hooks():
    model, rig = blocks_in(Blocks)
    del model[0]
    for seed in (1, 2):
        x = batch(seed)[..., :4]
        model(x).sum().backward()
        assert rig.values("look")["0"]["norm"] == pytest.approx(x.norm().item())
    assert rig.ledger["look"]["0"].fired == 3


def test_a_pass_is_exact_or_reported_if_the_root_is_a_container():
    model, rig = blocks_in(torch.nn.Sequential)
    del model[0]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model(batch(1)[..., :4]).sum().backward()
    reported = any("this forward pass was compiled without its hooks" in str(one.message) for one in caught)
    assert reported == (rig.ledger["look"]["0"].fired == 1)
    x = batch(2)[..., :4]
    model(x).sum().backward()
    assert rig.values("look")["0"]["norm"] == pytest.approx(x.norm().item())
