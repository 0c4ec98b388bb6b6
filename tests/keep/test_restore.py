"""Test `th.restore()`, which restores the saved plan and its state completely, or raises one error with all reasons."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

import tenterhook as th
from tenterhook.keep.restore import MAX_DIFFERENCES
from tests.keep.conftest import (
    ACTIONS,
    PLAN,
    TENSORS,
    Net,
    Run,
    attached,
    build,
    copied,
    counters,
    fresh,
    identical,
    same,
    through_torch,
)


def restored(run: Run, state: dict[str, Tensor] | None = None, **given: Any) -> Run:
    model, optimizer = fresh(run)
    state = run.rig.state_dict() if state is None else state
    return Run(model, optimizer, th.restore(model, state, optimizer=optimizer, actions=ACTIONS, **given))


def unhooked(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> bool:
    return not th.inventory(model, optimizer=optimizer)


# -- continuing a run -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 1, 3, 6])
def test_it_goes_on_bit_for_bit(steps):
    run = attached().train(range(steps))
    twin = restored(run)
    assert twin.rig.plan == PLAN and twin.rig.plan.digest == PLAN.digest
    same(twin.state(), run.state())
    assert counters(twin.rig) == counters(run.rig)
    for step in range(steps, steps + 3):
        run.train([step])
        twin.train([step])
        same(twin.state(), run.state())


def test_a_chain_of_restores_is_one_run():
    run, chain = attached(), attached()
    for step in range(6):
        run.train([step])
        chain = restored(chain).train([step])
        same(chain.state(), run.state())


def test_the_restored_rig_shares_nothing_with_the_state(run: Run):
    state = run.rig.state_dict()
    before = copied(state)
    twin = restored(run, state)
    for tensor in state.values():
        tensor.view(-1).view(torch.uint8).zero_()
    zeros = copied(state)
    same(twin.rig.state_dict(), before)
    run.train([6, 7])
    twin.train([6, 7])
    same(twin.state(), run.state())
    same(state, zeros)


def test_tensors_come_with_the_state_or_are_given(run: Run):
    twin, other = restored(run), restored(run, tensors={"v": torch.tensor([7.0, 8.0]), "unused": torch.ones(1)})
    x = torch.ones(1, 3)
    for one in (run, twin, other):
        one.model.eval()
    assert identical(twin.model(x), run.model(x))
    shift = other.model(x) - run.model(x)
    torch.testing.assert_close(shift, torch.tensor([[6.5, 8.25]]))
    assert twin.rig.loaded.notes == []
    assert other.rig.loaded.notes == ["the tensor 'v' differs from the saved tensor"]
    assert other.rig.state_dict()["tenterhook/rank0/tensor/v"].tolist() == [7.0, 8.0]
    assert "tenterhook/rank0/tensor/unused" not in other.rig.state_dict()


def test_a_tensor_that_is_trained_is_the_programs_to_give():
    def attach(by: Tensor) -> Run:
        model, optimizer = build()
        hook = th.Hook("m", on="head.bias", at="grad", do=th.mask(by="v"))
        return Run(model, optimizer, th.attach(model, hook, optimizer=optimizer, tensors={"v": by}))

    run = attach(torch.ones(2, requires_grad=True))
    assert not any("/tensor/" in key for key in run.rig.state_dict())
    with pytest.raises(th.MismatchError) as error:
        restored(run)
    assert "hook 'm': mask needs the tensor 'v', which was not passed" in str(error.value)
    assert not restored(run, tensors={"v": torch.ones(2)}).rig.loaded


def test_targets_fire_in_the_order_they_had():
    class Reversed(Net):
        def __init__(self) -> None:
            super().__init__()
            self._modules = dict(reversed(self._modules.items()))

    hook = th.Hook("r", on="**", at="grad_final", do=th.noise(1.0))
    run, model = attached(hook).train(range(2)), Reversed()
    model.load_state_dict(run.model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    twin = Run(model, optimizer, th.restore(model, run.rig.state_dict(), optimizer=optimizer))
    assert list(twin.rig.ledger["r"]) == list(run.rig.ledger["r"])
    run.train([2])
    twin.train([2])
    assert all(identical(p.grad, run.model.get_parameter(n).grad) for n, p in model.named_parameters())


def test_sinks_hear_of_the_steps_that_follow(run: Run):
    heard: list[tuple[int, str]] = []
    sink = lambda values, step: heard.extend((step, key) for key in values if key.endswith("/score"))
    assert restored(run, sinks=sink).train([6, 7]).rig.flush()
    assert restored(run, sinks=[sink]).train([6]).rig.flush()
    assert heard == [(6, "spike/head.weight/score"), (7, "spike/head.weight/score"), (6, "spike/head.weight/score")]


def test_the_clock_is_the_optimizer_that_is_named():
    def made() -> tuple[nn.Module, dict[str, torch.optim.Optimizer]]:
        model = Net()
        return model, {
            "head": torch.optim.SGD(model.head.parameters(), lr=0.1),
            "rest": torch.optim.SGD([*model.embed.parameters(), *model.blocks.parameters()], lr=0.1),
        }

    model, optimizers = made()
    rig = th.attach(model, th.Hook("n", on="**", at="grad_final", do=ACTIONS.get("count")()),
                    optimizer=optimizers, clock="head", actions=ACTIONS)  # fmt: skip
    for _ in range(3):
        model(torch.ones(1, 3)).sum().backward()
        for optimizer in optimizers.values():
            optimizer.step()
    state = rig.state_dict()
    for clock, steps in (("head", 4), ("rest", 3), (None, 4)):
        other, optimizers = made()
        again = th.restore(other, state, optimizer=optimizers, clock=clock, actions=ACTIONS)
        other(torch.ones(1, 3)).sum().backward()
        optimizers["head"].step()
        assert again.step_count == steps
        assert again.ledger["n"]["head.bias"].fired == 4 and again.ledger["n"]["embed.bias"].fired == 3
    with pytest.raises(th.ResolveError) as error:
        th.restore(Net(), state, optimizer=optimizers, clock="tail", actions=ACTIONS)
    assert str(error.value) == (
        "clock='tail' is not one of the optimizers\n  remedy: name one of 'optimizer.head', 'optimizer.rest'"
    )


def test_onto_a_model_that_has_the_hooks_already(run: Run):
    state = run.rig.state_dict()
    with pytest.raises(th.AttachedError) as error:
        th.restore(run.model, state, optimizer=run.optimizer, actions=ACTIONS)
    assert error.value.hook in run.rig.ledger
    assert str(error.value) == (
        f"hook {error.value.hook!r}: the model already has a hook with this id\n"
        "  remedy: pass replace=True to replace it, or call th.detach(model) to remove all hooks"
    )
    same(run.rig.state_dict(), state)
    twin = restored(run)
    run.train([6, 7])
    again = th.restore(twin.model, state, optimizer=twin.optimizer, actions=ACTIONS, replace=True)
    assert not twin.rig.ledger and list(again.ledger) == [hook.id for hook in PLAN]
    twin.rig = again
    twin.train([6, 7])
    same(twin.state(), run.state())


# -- the same names under other wrappers ------------------------------------------------------------------------------


def checkpointed(model: nn.Module) -> nn.Module:
    model.blocks = nn.ModuleList(checkpoint_wrapper(block) for block in model.blocks)
    return model


WRAPPERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "parallel": lambda model: nn.DataParallel(checkpointed(model)),
    "checkpointed": checkpointed,
    "compiled": lambda model: torch.compile(model, backend="eager"),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("way", ["in", "out"])
def test_under_another_wrapper(wrapper, way):
    """Save on the plain model and restore on the wrapped model, or the other way round."""
    at_parameters = [hook for hook in PLAN if hook.at.startswith("grad")]
    plan = th.Plan(at_parameters if wrapper == "compiled" else PLAN)

    def run_of(wrapped: bool, state: dict[str, Tensor] | None) -> Run:
        model, optimizer = build()
        if wrapped:
            model = WRAPPERS[wrapper](model)
        rig = (
            th.attach(model, plan, optimizer=optimizer, actions=ACTIONS, tensors={"v": torch.ones(2)})
            if state is None
            else th.restore(model, state, optimizer=optimizer, actions=ACTIONS)
        )
        return Run(model, optimizer, rig)

    first = run_of(way == "out", None).train(range(3))
    state = first.rig.state_dict()
    second = run_of(way == "in", state)
    for mine, theirs in zip(second.model.parameters(), first.model.parameters(), strict=True):
        mine.data.copy_(theirs.data)
    second.optimizer.load_state_dict(through_torch(first.optimizer.state_dict()))
    same(second.rig.state_dict(), state)
    first.train([3, 4])
    second.train([3, 4])
    same(second.rig.state_dict(), first.rig.state_dict())
    for mine, theirs in zip(second.model.parameters(), first.model.parameters(), strict=True):
        assert identical(mine, theirs)


class Tied(nn.Module):
    def __init__(self, first: str = "inner", tied: bool = True) -> None:
        super().__init__()
        for name in ("inner", "outer") if first == "inner" else ("outer", "inner"):
            self.add_module(name, nn.Linear(2, 2, bias=False))
        if tied:
            self.outer.weight = self.inner.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.inner(x))


def test_tied_weights_are_one_target_under_any_of_their_names():
    hook = th.Hook("n", on="**", at="grad", do=ACTIONS.get("count")())
    model, untied, other = Tied(), Tied(tied=False), Tied("outer")
    rig = th.attach(model, hook, actions=ACTIONS)
    model(torch.ones(1, 2)).sum().backward()
    assert list(rig.ledger["n"]) == ["inner.weight"]
    again = th.restore(other, rig.state_dict(), actions=ACTIONS)
    assert list(again.ledger["n"]) == ["outer.weight"]
    assert again.ledger["n"]["inner.weight"].fired == rig.ledger["n"].fired
    assert identical(again.state_dict()["tenterhook/rank0/state/n/n"], rig.state_dict()["tenterhook/rank0/state/n/n"])
    with pytest.raises(th.MismatchError) as error:
        th.restore(untied, rig.state_dict(), actions=ACTIONS)
    assert str(error.value) == (
        "the saved state does not fit: 1 difference\n"
        "  hook 'n' on 'outer.weight': on this model, but not saved\n"
        "  remedy: pass strict=False to load what fits"
    )
    apart = th.attach(untied, hook, actions=ACTIONS)
    with pytest.raises(th.MismatchError) as error:
        th.restore(Tied(), apart.state_dict(), actions=ACTIONS)
    assert str(error.value) == (
        "the saved state does not fit: 1 difference\n"
        "  hook 'n' on 'outer.weight': saved, but not on this model\n"
        "  remedy: pass strict=False to load what fits"
    )


# -- names that changed -----------------------------------------------------------------------------------------------


class Deeper(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class Renamed(Net):
    def __init__(self) -> None:
        super().__init__()
        self._modules = {{"blocks": "layers"}.get(name, name): module for name, module in self._modules.items()}

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@pytest.mark.parametrize(
    ("make", "line"), [(Deeper, 'rename={"*": "net.*"}'), (Renamed, 'rename={"blocks": "layers"}')]
)
def test_the_proposed_rename_settles_it(make, line, run: Run):
    state = run.rig.state_dict()
    model, optimizer = build(make)
    with pytest.raises(th.MismatchError) as error:
        th.restore(model, state, optimizer=optimizer, actions=ACTIONS)
    assert error.value.remedy == f"pass {line}, or pass strict=False to load what fits"
    assert unhooked(model, optimizer)
    for mine, theirs in zip(model.parameters(), run.model.parameters(), strict=True):
        mine.data.copy_(theirs.data)
    optimizer.load_state_dict(through_torch(run.optimizer.state_dict()))
    rename = ast.literal_eval(error.value.report.renaming.removeprefix("rename="))
    rig = th.restore(model, state, optimizer=optimizer, actions=ACTIONS, rename=rename)
    twin = Run(model, optimizer, rig)
    other, another = build(make)
    loaded = th.attach(other, rig.plan, optimizer=another, actions=ACTIONS, tensors=TENSORS)
    report = loaded.load_state_dict(state, rename=rename)
    assert not report and not report.notes
    same(loaded.state_dict(), rig.state_dict())
    assert [site.fired for account in rig.ledger.values() for site in account.values()] == [
        site.fired for account in run.rig.ledger.values() for site in account.values()
    ]
    run.train([6, 7])
    twin.train([6, 7])
    for mine, theirs in zip(model.parameters(), run.model.parameters(), strict=True):
        assert identical(mine, theirs)
    assert rig.values("spike").popitem()[1] == run.rig.values("spike").popitem()[1]
    back = {new: old for old, new in rename.items()}
    again = restored(run, rig.state_dict(), rename=back)
    assert again.rig.plan == PLAN and counters(again.rig) == counters(run.rig)
    same(again.rig.state_dict(), run.rig.state_dict())


def test_hooks_on_the_optimizer_come_along_when_the_model_moves():
    actions = th.Registry()

    @th.action("tally", registry=actions, at=["step_post"])
    def tally(optimizer: torch.optim.Optimizer, ctx: th.Context) -> None:
        ctx.state["n"] = ctx.state.get("n", torch.zeros(())) + 1

    model, optimizer = build()
    rig = th.attach(model, th.Hook("t", on="**", at="step_post", do=tally), optimizer=optimizer, actions=actions)
    Run(model, optimizer, rig).train(range(2))
    other, optimizer = build(Deeper)
    again = th.restore(other, rig.state_dict(), optimizer=optimizer, actions=actions, rename={"*": "net.*"})
    Run(other, optimizer, again).train(range(2))
    assert again.ledger["t"].fired == 4
    assert again.state_dict()["tenterhook/rank0/free/t/float32/0/n"].tolist() == [4.0]


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_every_kind_of_mismatch_is_in_one_report():
    then, now = th.Registry(), th.Registry()
    fn = ACTIONS.get("count").fn

    def twice(x: Tensor, ctx: th.Context) -> None:
        ctx.state["n"] = ctx.state["n"] + 2

    for name in ("aged", "grown", "edited", "unknown", "widened"):
        th.action(name, registry=then, state={"n": 0.0}, version=2)(fn)
    th.action("aged", registry=now, state={"n": 0.0}, version=1)(fn)
    th.action("grown", registry=now, state={"n": 0.0}, version=3)(fn)
    th.action("edited", registry=now, state={"n": 0.0}, version=2)(twice)
    th.action("widened", registry=now, state={"n": 0.0, "m": 0.0}, version=2)(fn)
    th.action("unknow", registry=now)(fn)
    on = {"on": "embed.bias", "at": "grad"}
    plan = [
        th.Hook("missing", on="head.*", at="grad", do=th.stats()),
        th.Hook("extra", on="embed.*", at="grad", do=th.stats()),
        th.Hook("nowhere", on="blocks.1", at="output", do=th.stats()),
        th.Hook("shape", on="blocks.0.lin.*", at="grad", do=th.stats()),
        th.Hook("expected", on="**.lin.bias", at="grad", do=th.stats(), expect=2),
        th.Hook("aged", **on, do=th.Action("aged")),
        th.Hook("grown", **on, do=th.Action("grown")),
        th.Hook("edited", **on, do=th.Action("edited")),
        th.Hook("widened", **on, do=th.Action("widened")),
        th.Hook("unknown", **on, do=th.Action("unknown")),
        th.Hook("final", on="**", at="grad_final", do=th.stats()),
        th.Hook("steer", on="head", at="output", do=th.steer(by="w")),
    ]

    class Other(Net):
        def __init__(self) -> None:
            super().__init__()
            self.embed.scale = nn.Parameter(torch.ones(1))
            self.blocks = nn.ModuleList([self.blocks[0].double()])
            self.blocks[0].lin.weight = nn.Parameter(torch.zeros(5, 4))
            self.head.register_parameter("bias", None)

    model, optimizer = build()
    rig = th.attach(model, plan, optimizer=optimizer, actions=then, tensors={"w": torch.ones(2)})
    Run(model, optimizer, rig).train(range(2))
    other = Other()
    with pytest.raises(th.MismatchError) as error:
        th.restore(other, rig.state_dict(), actions=now)
    assert str(error.value).splitlines() == [
        "the saved state does not fit: 13 differences",
        "  saved with 'optimizer', but this rig has no optimizer",
        "  hook 'nowhere': no module is named 'blocks.1'; use one of the nearest names: 'blocks.0', 'blocks', "
        "'blocks.0.lin'",
        "  hook 'expected': found 1 target, expected 2: blocks.0.lin.bias; correct `on`, or write expect=1",
        "  hook 'unknown': the action 'unknown' is not registered; the nearest is 'unknow'; write 'unknow'; for an "
        'action of your own, first import the module that contains @th.action("unknown"), or pass --actions MODULE to '
        "the command. A plan never imports code",
        "  hook 'final': this point needs an optimizer, but none was passed; pass optimizer=optimizer, or use "
        "grad_accumulated",
        "  hook 'missing' on 'head.bias': saved, but not on this model",
        "  hook 'extra' on 'embed.scale': on this model, but not saved",
        "  hook 'shape' on 'blocks.0.lin.weight': saved as float32[4, 4], but it is now float32[5, 4]",
        "  hook 'shape' on 'blocks.0.lin.bias': saved as float32[4], but it is now float64[4]",
        "  hook 'aged': saved with version 2 of 'aged', which is newer than this version, 1",
        "  hook 'grown': saved with version 2 of 'grown', which is older than this version, 3",
        "  hook 'edited': the code of 'edited' has changed since the state was saved",
        "  hook 'widened': the state 'm' was not saved",
        "  remedy: pass optimizer=optimizer, define the actions first, or pass strict=False to load what fits",
    ]
    assert {(d.kind, d.hook) for d in error.value.report.differences} == {
        ("target", "nowhere"), ("target", "expected"), ("action", "unknown"), ("hook", "final"), ("target", "missing"),
        ("target", "extra"), ("target", "shape"), ("action", "aged"), ("action", "grown"), ("action", "edited"),
        ("state", "widened"), ("clock", None),
    }  # fmt: skip
    assert unhooked(other)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    with pytest.warns(RuntimeWarning) as warned:
        again = th.restore(other, rig.state_dict(), optimizer=optimizer, actions=now, strict=False)
    (said,) = warned
    assert said.filename == __file__
    assert str(said.message).startswith(
        "tenterhook restores only the state that fits: 17 differences\n  hook 'nowhere': no module"
    )
    left = ["missing", "extra", "shape", "aged", "grown", "edited", "widened", "final", "steer"]
    assert list(again.ledger) == left == [hook.id for hook in again.plan] and again.step_count == 2
    fired = {(hook, target): count[1] for (hook, target), count in counters(again).items() if hook != "final"}
    assert fired == {
        ("missing", "head.weight"): 4, ("extra", "embed.weight"): 4, ("extra", "embed.bias"): 4,
        ("extra", "embed.scale"): 0, ("shape", "blocks.0.lin.weight"): 0, ("shape", "blocks.0.lin.bias"): 0,
        ("aged", "embed.bias"): 4, ("grown", "embed.bias"): 4, ("edited", "embed.bias"): 4,
        ("widened", "embed.bias"): 4, ("steer", "head"): 4,
    }  # fmt: skip


def test_of_a_plan_that_does_not_fit_at_all_the_rest_is_not_looked_at():
    count = ACTIONS.get("count")()
    run = attached(th.Hook(f"h{i}", on="head.bias", at="grad", do=count) for i in range(MAX_DIFFERENCES + 10))
    with pytest.raises(th.MismatchError) as error:
        th.restore(run.model, run.rig.state_dict(), optimizer=run.optimizer)
    assert len(error.value.report.differences) == MAX_DIFFERENCES + 1
    assert str(error.value.report.differences[-1]) == "10 more hooks were not compared"


def test_a_frozen_target_that_is_named_is_refused_and_one_that_is_matched_sleeps():
    hooks = [th.Hook("named", on="head.bias", at="grad", do=th.scale(2.0)),
             th.Hook("matched", on="head.*", at="grad", do=ACTIONS.get("count")())]  # fmt: skip
    run = attached(hooks).train(range(2))
    model, optimizer = fresh(run)
    model.head.bias.requires_grad_(False)
    with pytest.raises(th.MismatchError) as error:
        th.restore(model, run.rig.state_dict(), optimizer=optimizer, actions=ACTIONS)
    assert str(error.value) == (
        "the saved state does not fit: 1 difference\n"
        "  hook 'named' on 'head.bias': the hook cannot fire because the target is frozen; set requires_grad=True, "
        "or use a pattern, so that the hook is dormant until the parameter is unfrozen\n"
        "  remedy: pass strict=False to load what fits"
    )
    run.rig.remove("named")
    rig = th.restore(model, run.rig.state_dict(), optimizer=optimizer, actions=ACTIONS)
    twin = Run(model, optimizer, rig).train([2])
    model.head.bias.requires_grad_(True)
    twin.train([3])
    assert counters(rig)["matched", "head.bias"] == (3, 6, 0, 0, 0, 0, 3, {}, None)
    assert rig.state_dict()["tenterhook/rank0/state/matched/n"].tolist() == [8.0, 6.0]


def test_what_is_not_a_module(run: Run):
    with pytest.raises(th.ResolveError) as error:
        th.restore(run.optimizer, run.rig.state_dict(), optimizer=run.optimizer, actions=ACTIONS)
    assert str(error.value).startswith("the model must be a module, but its type is AdamW\n")
