"""A graph callback runs any Python code, which sees, keeps, changes and raises the same as in eager mode."""

from __future__ import annotations

import copy
import gc
import warnings
import weakref
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.utils.checkpoint import checkpoint

import tenterhook as th
from tenterhook.rig.compiled import graph_ops
from tests.support.compiled.stack import Stack, batch, build, graphs

#: torch.compile of a block reads the .grad of its inputs
pytestmark = [
    pytest.mark.compiled,
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]

BACKENDS = ("aot_eager", "inductor")


def steps(run: Any, model: nn.Module, count: int, optimizer: torch.optim.Optimizer | None = None) -> None:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(count):
        optimizer.zero_grad()
        run(batch(step)).square().mean().backward()
        optimizer.step()


@pytest.mark.slice(3)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_with_side_effects_is_called_each_time_in_one_graph(backend: str):
    def train(how: str) -> list[Tensor]:
        model, run = build(how, backend)
        kept: list[Tensor] = []
        th.hook(model, lambda x: kept.append(x.detach()), on="blocks.*.up", at="output")
        th.hook(model, kept.append, on="blocks.*.up", at="grad_output")
        steps(run, model, 4)
        return kept

    eager, compiled = train("eager"), train("whole")
    assert len(eager) == len(compiled) == 16
    for mine, theirs in zip(compiled, eager, strict=True):  # compiled code has reused the memory since
        torch.testing.assert_close(mine, theirs)
    assert graphs() == 2 and not counters["graph_break"]


def test_an_action_gets_call_leaf_step_and_value_and_keeps_state():
    def train(how: str) -> Any:
        registry, told = th.Registry(), []

        @th.action("tell", registry=registry, at="grad_output", modifies=True, needs_value=True)
        def tell(grad: Tensor, ctx: th.Context) -> Tensor:
            ctx.state["sum"] = ctx.state.get("sum", torch.zeros(())) + grad.sum()
            ctx.emit("dot", (grad * ctx.value).sum())
            told.append((ctx.target, ctx.call, ctx.leaf, ctx.step, ctx.value.clone()))
            return grad * (1 + ctx.call)

        class Twice(Stack):
            def forward(self, x: Tensor) -> Tensor:
                return super().forward(super().forward(x))

        torch.manual_seed(0)
        model = Twice()
        run = model if how == "eager" else torch.compile(model, backend="aot_eager", fullgraph=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rig = th.attach(model, th.Hook("h", on="blocks.*.up", at="grad_output", do=tell()), optimizer=optimizer,
                        actions=registry)  # fmt: skip
        steps(run, model, 3, optimizer)
        state = {key: value for key, value in rig.state_dict().items() if "sum" in key}
        return told, [(r.target, r.call, r.value) for r in rig.rows("h")], state, list(model.parameters())

    eager, compiled = train("eager"), train("whole")
    assert [t[:4] for t in eager[0]] == [t[:4] for t in compiled[0]]
    assert {t[1] for t in compiled[0]} == {0, 1}
    assert all(torch.equal(a[4], b[4]) for a, b in zip(eager[0], compiled[0], strict=True))
    assert eager[1] == compiled[1]
    assert all(torch.equal(compiled[2][key], value) for key, value in eager[2].items())
    assert all(map(torch.equal, eager[3], compiled[3]))


@pytest.mark.slice(3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("at", ["output", "grad_output"])
def test_an_action_that_raises_is_named(at: str, backend: str):
    model, run = build("whole", backend)

    def broken(x: Tensor) -> Tensor:
        raise ValueError("no")

    th.attach(model, th.Hook("h", on="blocks.1.up", at=at, do=broken))
    with pytest.raises(th.HookError, match=r"its action .*broken raised ValueError: no \(step 0\)") as raised:
        run(batch(0)).sum().backward()
    assert (raised.value.hook, raised.value.target, raised.value.point) == ("h", "blocks.1.up", at)


def test_an_observer_that_raises_is_muted_and_the_graph_stays():
    model, run = build("whole")
    registry = th.Registry()

    @th.action("broken", registry=registry)
    def broken(x: Tensor) -> None:
        raise ValueError("no")

    rig = th.attach(model, th.Hook("h", on="blocks.*.up", at="output", do=broken()), actions=registry)
    with pytest.warns(RuntimeWarning, match="tenterhook muted a hook at one target"):
        run(batch(0))
    for _ in range(3):
        run(batch(0))
    assert rig.ledger["h"].failed == 2 and len(rig.ledger["h"].dormant) == 2
    assert graphs() == 1


def test_an_invalid_return_value_is_reported():
    model, run = build("whole")
    th.attach(model, th.Hook("h", on="blocks.1.up", at="output", do=lambda x: x[:1]))
    message = r"returned float32\(1, 8\) on cpu, but the value was float32\(2, 8\) on cpu"
    with pytest.raises(th.ContractError, match=message):
        run(batch(0))


@dataclass
class Pair:
    first: Tensor
    rest: dict[str, Any]


class Odd(nn.Module):
    """Takes a keyword and returns a nested value; one leaf has an integer dtype, another is the input itself."""

    def forward(self, x: Tensor, *, factor: Tensor) -> Any:
        return Pair(x * factor, {"more": (x.argmax(-1), [x, None]), "note": "text"})


class Nest(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.odd = Odd()

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        out = self.odd(x, factor=x.mean())
        chosen, (again, _) = out.rest["more"]
        return out.first + again.roll(1) + chosen[:, None] * 0.1 + x


@pytest.mark.slice(3)
@pytest.mark.parametrize("at", ["input", "output", "grad_output"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_nested_values_are_taken_leaf_by_leaf(at: str, backend: str):
    def train(compiled: bool) -> Any:
        torch.manual_seed(0)
        model, seen = Nest(), []

        def half(x: Tensor, ctx: th.Context) -> Tensor | None:
            seen.append((ctx.leaf, x.detach().clone()))
            return x * 0.5 if x.is_floating_point() else None

        rig = th.attach(model, th.Hook("h", on="odd", at=at, do=half))
        run = torch.compile(model, backend=backend, fullgraph=True) if compiled else model
        run(batch(0)).square().mean().backward()
        return seen, model.first.weight.grad, (rig.ledger["h"].fired, rig.ledger["h"].changed)

    eager, compiled = train(False), train(True)
    assert sorted(leaf for leaf, _ in eager[0]) == sorted(leaf for leaf, _ in compiled[0])
    for leaf, value in eager[0]:
        assert any(torch.allclose(value, other) for number, other in compiled[0] if number == leaf)
    torch.testing.assert_close(eager[1], compiled[1])
    assert eager[2] == compiled[2]


@pytest.mark.parametrize("at", ["output", "grad_output"])
@pytest.mark.parametrize("do", [th.stats(), th.scale(0.5)], ids=["observes", "modifies"])
def test_a_call_without_tensors_is_counted_as_skipped(at: str, do: Any):
    class Note(nn.Module):
        def forward(self, x: Tensor) -> str:
            return "text"

    class Noted(Stack):
        def __init__(self) -> None:
            super().__init__()
            self.note = Note()

        def forward(self, x: Tensor) -> Tensor:
            self.note(x)
            return super().forward(x)

    model = Noted()
    rig = th.attach(model, th.Hook("h", on="note", at=at, do=do))
    torch.compile(model, backend="aot_eager", fullgraph=True)(batch(0)).sum().backward()
    assert rig.ledger["h"].skipped == {"no tensor was found in the output (type: str)": 1}


@pytest.mark.slice(3)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_value_that_is_changed_in_place_afterwards(backend: str):
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            return self.last(nn.functional.relu(y.view(-1), inplace=True).view(y.shape))

    def train(compiled: bool) -> Any:
        torch.manual_seed(0)
        model = InPlace()
        rig = th.attach(model, [
            th.Hook("seen", on="first", at="grad_output", do=th.stats()),
            th.Hook("half", on="first", at="grad_output", do=th.scale(0.5)),
        ])  # fmt: skip
        run = torch.compile(model, backend=backend, fullgraph=True) if compiled else model
        run(batch(0)).square().mean().backward()
        return rig.values("seen")["first"]["norm"], model.first.weight.grad

    eager, compiled = train(False), train(True)
    assert eager[0] == pytest.approx(compiled[0], rel=1e-6) and eager[0] > 0
    torch.testing.assert_close(eager[1], compiled[1])


@pytest.mark.slice(3)
@pytest.mark.parametrize("backend", BACKENDS)
def test_two_forwards_before_their_backwards_and_evaluation_between(backend: str):
    def train(how: str) -> Any:
        model, run = build(how, backend)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rig = th.attach(model, [
            th.Hook("seen", on="blocks.*.up", at="output", do=th.stats()),
            th.Hook("norm", on="blocks.*.up", at="output", do=th.clip_norm(1.0)),
            th.Hook("call", on="blocks.*.down", at="grad_output", do=lambda g, ctx: g * (1 + ctx.call)),
        ], optimizer=optimizer)  # fmt: skip
        for step in range(3):
            first, second = run(batch(step)), run(batch(step + 2))
            with torch.no_grad():
                run(batch(step))
            first.square().mean().backward()
            (second * run(batch(step + 4))).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        counts = {id: (a.fired, a.changed, a.skipped) for id, a in rig.ledger.items()}
        return list(model.parameters()), rig.values("seen"), counts

    eager, compiled = train("eager"), train("whole")
    for mine, theirs in zip(compiled[0], eager[0], strict=True):
        torch.testing.assert_close(mine, theirs)
    assert eager[2] == compiled[2]
    for target, numbers in eager[1].items():
        assert numbers == pytest.approx(compiled[1][target], rel=1e-5)


def test_the_tensor_of_a_modifier_is_freed_with_the_graph_that_used_it():
    model, run = build("whole")
    made: list[weakref.ref[Tensor]] = []

    def half(x: Tensor) -> Tensor:
        new = x * 0.5
        made.append(weakref.ref(new))
        return new

    th.attach(model, th.Hook("h", on="blocks.*.up", at="output", do=half))
    for _ in range(4):
        run(batch(0))  # without a backward
    run(batch(0)).sum().backward()
    run(batch(0))
    gc.collect()
    assert sum(ref() is not None for ref in made) <= 2, "only tensors of the last forward may remain"


@pytest.mark.parametrize("how", ["whole", "function"])
def test_a_rig_that_leaves_between_forward_and_backward(how: str):
    model, run = build(how)
    with th.attach(model, th.Hook("none", on="blocks.*.up", at="output", do=th.scale(0.0))):
        loss = run(batch(0)).sum() + run(batch(2)).sum()
    gc.collect()
    loss.backward()
    assert not model.blocks[0].up.weight.grad.any() and model.blocks[0].down.bias.grad.any()
    del loss
    gc.collect()
    assert not graph_ops._changes


def test_other_tensors_that_an_action_uses_get_their_gradients():
    def train(compiled: bool) -> list[Tensor | None]:
        model, run = build("whole" if compiled else "eager")
        by, gate = nn.Parameter(torch.ones(8)), nn.Parameter(torch.ones(8))
        th.attach(model, [
            th.Hook("steer", on="blocks.*.up", at="output", do=th.steer("by")),
            th.Hook("gate", on="blocks.*.up", at="output", do=lambda x: x * gate),
        ], tensors={"by": by})  # fmt: skip
        run(batch(0)).square().sum().backward()
        return [by.grad, gate.grad, model.blocks[0].up.weight.grad]

    for mine, theirs in zip(train(True), train(False), strict=True):
        assert mine is not None
        torch.testing.assert_close(mine, theirs)


def test_a_gradient_that_compiled_code_does_not_expect_is_refused():
    model, run = build("whole")
    model.requires_grad_(False)
    by = nn.Parameter(torch.ones(8))
    th.attach(model, th.Hook("steer", on="blocks.0.up", at="output", do=th.steer("by")), tensors={"by": by})
    with pytest.raises(th.RefusedError, match="compiled code computes no gradient for this value") as refused:
        run(batch(0))
    assert (refused.value.hook, refused.value.target, refused.value.point) == ("steer", "blocks.0.up", "output")


def test_rigs_fire_in_the_order_they_were_attached():
    def train(compiled: bool) -> Tensor:
        model, run = build("by block" if compiled else "eager")
        th.attach(model, th.Hook("clip", on="blocks.*.up", at="grad_output", do=th.clip_value(0.01)))
        th.attach(model, th.Hook("scale", on="blocks.*.up", at="grad_output", do=th.scale(5.0)))
        run(batch(0)).sum().backward()
        return model.blocks[0].up.bias.grad

    assert torch.equal(train(True), train(False))
    assert graphs() == 2, "blocks of one class share a graph; the input of the first block does not require grad"


@pytest.mark.slice(3)
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_unused_value_is_observed(backend: str):
    class Spare(Stack):
        def forward(self, x: Tensor) -> Tensor:
            self.blocks[1](x)
            return self.blocks[0](x)

    model, seen = Spare(), []
    rig = th.attach(model, [
        th.Hook("look", on="blocks.*.up", at="output", do=th.stats()),
        th.Hook("half", on="blocks.*.down", at="output", do=th.scale(0.5)),
        th.Hook("python", on="blocks.*.down", at="output", do=lambda x: seen.append(x.shape)),
    ])  # fmt: skip
    torch.compile(model, backend=backend, fullgraph=True)(batch(0)).sum().backward()
    assert {id: account.fired for id, account in rig.ledger.items()} == {"half": 2, "python": 2, "look": 2}
    assert len(seen) == 2


def test_a_hook_enabled_after_a_forward_does_not_fire_in_its_backward():
    def train(compiled: bool) -> Any:
        model, run = build("whole" if compiled else "eager")
        rig = th.attach(model, th.Hook("none", on="blocks.*.up", at="grad_output", do=th.scale(0.0)))
        run(batch(0)).sum().backward()
        rig.mute("none")
        loss = run(batch(0)).sum()
        rig.unmute("none")
        loss.backward()
        return rig.ledger["none"].fired, model.blocks[0].up.bias.grad

    eager, compiled = train(False), train(True)
    assert eager[0] == compiled[0] == 2
    assert torch.equal(eager[1], compiled[1])


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_has_no_hooks(strict: bool):
    model, _ = build("eager")
    bare, calls = model(batch(0)), []
    rig = th.attach(model, [
        th.Hook("half", on="blocks.*.up", at="output", do=th.scale(0.5)),
        th.Hook("less", on="blocks.*.down", at="input", do=th.scale(0.5)),
        th.Hook("told", on="blocks.*.down", at="output", do=lambda x, ctx: calls.append(ctx.call)),
        th.Hook("seen", on="blocks.*.up", at="grad_output", do=th.stats()),
    ])  # fmt: skip
    program = torch.export.export(model, (batch(0),), strict=strict).module()
    torch.testing.assert_close(program(batch(0)), bare)
    assert [account.fired for account in rig.ledger.values()] == [0, 0, 0, 0]
    model(batch(0))
    assert calls == [0, 0]


@pytest.mark.parametrize("how", ["function", "sequential"])
def test_compiled_code_that_calls_the_root_itself(how: str):
    def train(compiled: bool) -> Any:
        torch.manual_seed(0)
        model: nn.Module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
        rig = th.attach(model, [
            th.Hook("seen", on="0", at="output", do=th.stats()),
            th.Hook("grad", on="2", at="grad_output", do=th.stats()),
            th.Hook("whole", on=".", at="output", do=th.scale(2.0), when=th.When(every=2)),
        ])  # fmt: skip
        run: Any = model
        if compiled and how == "function":
            run = torch.compile(lambda x: model(x), backend="aot_eager", fullgraph=True)
        elif compiled:
            run = torch.compile(model, backend="aot_eager", fullgraph=True)
        values = []
        for step in range(5):
            run(batch(step)).square().mean().backward()
            values.append((rig.values("seen"), rig.values("grad")))
        return rig.step_count, values, [p.grad for p in model.parameters()], {i: a.fired for i, a in rig.ledger.items()}

    eager, compiled = train(False), train(True)
    assert eager[0] == compiled[0] == 5
    assert eager[1] == compiled[1] and eager[3] == compiled[3]
    assert all(map(torch.equal, eager[2], compiled[2]))


def test_a_copy_of_a_hooked_model_has_no_graph_callbacks():
    model, run = build("whole")
    rig = th.attach(model, th.Hook("half", on="blocks.*.up", at="output", do=th.scale(0.5)))
    run(batch(0))
    other = copy.deepcopy(model)
    bare = torch.compile(other, backend="aot_eager", fullgraph=True)(batch(0))
    assert rig.ledger["half"].fired == 2
    rig.detach()
    assert torch.equal(run(batch(0)), bare)


def test_a_compiled_step_of_the_optimizer():
    """Compare with the same steps without hooks, because torch 2.11 rounds a compiled step differently."""

    def bare() -> list[Tensor]:
        model, run = build("whole")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = torch.compile(optimizer.step, backend="aot_eager")
        for number in range(3):
            run(batch(number)).square().mean().backward()
            for parameter in model.parameters():
                parameter.grad.clamp_(-0.01, 0.01)
            step()
            optimizer.zero_grad()
        return list(model.parameters())

    def train(compiled: bool) -> Any:
        model, run = build("whole" if compiled else "eager")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rig = th.attach(model, [
            th.Hook("clip", on="**", at="grad_final", do=th.clip_value(0.01)),
            th.Hook("moved", on="**", at="update", do=th.stats()),
        ], optimizer=optimizer)  # fmt: skip
        step = torch.compile(optimizer.step, backend="aot_eager") if compiled else optimizer.step
        for number in range(3):
            run(batch(number)).square().mean().backward()
            step()
            optimizer.zero_grad()
        return rig.step_count, rig.values("moved"), list(model.parameters())

    eager, compiled = train(False), train(True)
    assert eager[:2] == compiled[:2]
    assert all(map(torch.equal, bare(), compiled[2]))


def test_compiled_autograd():
    """Check that compiled autograd, which traces tensor hooks, still calls our Python code in every backward."""

    def train(compiled: bool) -> Any:
        model, run = build("whole" if compiled else "eager")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rig = th.attach(model, [
            th.Hook("clip", on="**", at="grad", do=th.clip_value(0.01)),
            th.Hook("seen", on="**", at="grad", do=th.stats()),
            th.Hook("sum", on="**", at="grad_accumulated", do=th.scale(0.5)),
            th.Hook("turn", on="blocks.*.up", at="grad_output", do=th.clip_value(0.01)),
        ], optimizer=optimizer)  # fmt: skip

        def backward(loss: Tensor) -> None:
            loss.backward()

        backward = torch.compile(backward, backend="aot_eager") if compiled else backward
        for _ in range(12):
            backward(run(batch(0)).square().mean())
            optimizer.step()
            optimizer.zero_grad()
        return list(model.parameters()), rig.values("seen"), {id: a.fired for id, a in rig.ledger.items()}

    eager = train(False)
    with torch._dynamo.config.patch(compiled_autograd=True):
        compiled = train(True)
    assert all(map(torch.equal, eager[0], compiled[0]))
    assert eager[1:] == compiled[1:]


class Tapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(th.tap(torch.tanh(self.a(x)), "mid", within=self))


@pytest.mark.parametrize("at, on", [("grad_input", "b"), ("value", ":mid"), ("value_grad", ":mid")])
def test_unsupported_points_break_the_graph_and_give_the_right_values(at: str, on: str):
    def train(compiled: bool) -> Any:
        torch.manual_seed(0)
        model = Tapped()
        rig = th.attach(model, th.Hook("h", on=on, at=at, do=th.stats()))
        run = torch.compile(model, backend="aot_eager") if compiled else model
        for step in range(3):
            run(batch(step)).sum().backward()
        fired, values = rig.ledger["h"].fired, rig.values("h")
        rig.detach()
        return fired, values

    assert train(False) == train(True)
    assert sum(counters["graph_break"].values()) >= 1
    torch._dynamo.reset()
    model = Tapped()
    with th.attach(model, th.Hook("h", on=on, at=at, do=th.stats())), pytest.raises(
        torch._dynamo.exc.Unsupported, match="tenterhook supports grad_input, taps, optimizer steps"
    ):  # fmt: skip
        torch.compile(model, backend="aot_eager", fullgraph=True)(batch(0))


def test_a_tap_without_hooks_leaves_the_graph_whole():
    torch.compile(Tapped(), backend="aot_eager", fullgraph=True)(batch(0))
    assert graphs() == 1


def test_the_hooks_on_taps_of_a_model_that_died_leave_other_graphs_whole():
    th.attach(Tapped(), th.Hook("h", on=":mid", at="value", do=th.stats()))
    gc.collect()
    torch.compile(Tapped(), backend="aot_eager", fullgraph=True)(batch(0))
    assert graphs() == 1


def test_the_producer_of_the_first_nan_is_found_in_compiled_code():
    model, run = build("by block", "inductor")
    with torch.no_grad():
        model.blocks[1].up.weight[0, 0] = torch.nan
    with pytest.raises(th.NonFiniteError, match="the first output that is not finite") as found, th.find_nonfinite(run):
        run(batch(0)).sum().backward()
    assert found.value.target == "blocks.1.up"


def test_a_rig_restored_on_a_compiled_model_continues_bit_for_bit():
    plan = th.Plan([
        th.Hook("z", on="blocks.*.up", at="grad_output", do=th.clip_zscore(0.5, warmup=2)),
        th.Hook("noise", on="blocks.*.down", at="output", do=th.noise(0.1)),
    ])  # fmt: skip

    def train(interrupted: bool) -> list[Tensor]:
        model, run = build("whole")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rig = th.attach(run, plan, optimizer=optimizer)
        steps(run, model, 5, optimizer)
        if interrupted:
            saved = (copy.deepcopy(model.state_dict()), rig.state_dict())
            model, run = build("whole")
            model.load_state_dict(saved[0])
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            th.restore(run, saved[1], optimizer=optimizer)
        steps(run, model, 5, optimizer)
        return list(model.parameters())

    assert all(map(torch.equal, train(False), train(True)))


class Checkpointed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda x: self.b(self.a(x).tanh()), x, use_reentrant=False)


@pytest.mark.filterwarnings("ignore:remat_using_tags_for_fwd_loss_bwd_graph")  # torch 2.10
@pytest.mark.parametrize("at", ["input", "output", "grad_output"])
def test_several_forward_passes_before_the_backward_pass_of_a_compiled_checkpoint(at):
    """Compare with the same model in eager mode. The graph of a checkpoint saves what its callbacks mutate."""
    torch.manual_seed(0)
    eager = Checkpointed()
    compiled = torch.compile(copy.deepcopy(eager), backend="aot_eager")
    for model in (eager, compiled):
        th.attach(model, th.Hook("half", on="a", at=at, do=th.scale(0.5)))
        first, second = model(torch.ones(3, 4)), model(torch.ones(3, 4) * 2)
        with torch.no_grad():
            model(torch.ones(3, 4) * 3)
        (first.sum() + second.sum()).backward()
    for one, other in zip(eager.parameters(), compiled.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


def test_compiled_autograd_without_an_optimizer_is_reported():
    model = torch.nn.Linear(4, 2)
    rig = th.attach(model, th.Hook("s", on="**", at="grad", do=th.stats()))
    enabled = torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager"))
    with warnings.catch_warnings(record=True) as caught, enabled:
        warnings.simplefilter("always")
        model(torch.ones(1, 4)).sum().backward()
    assert (
        "tenterhook: compiled autograd does not tell when a backward pass ends, so no step of this rig ends\n"
        "  remedy: give attach the optimizer, or mark each step with rig.step()"
    ) in [str(one.message) for one in caught]
    assert rig.step_count == 0
