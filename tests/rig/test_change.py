"""Checks when a change takes effect: add, remove, mute, unmute, revise, and schedules."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import tenterhook as th
from tests.support.rig.squared import Squared, gradient, x


def double(x: Tensor) -> Tensor:
    return x * 2


PLAIN, DOUBLED = 2 * 3.0, 2 * 4 * 3.0  # d/dw (wx)^2 and d/dw (2wx)^2


def test_a_gradient_hook_removed_or_muted_between_forward_and_backward_is_off_at_once():
    for change in (lambda rig: rig.remove("d"), lambda rig: rig.mute("d")):
        for at, on in (("grad", "inner.weight"), ("grad_output", "inner"), ("grad_input", "inner")):
            model = Squared()
            rig = th.attach(model, [th.Hook("d", on=on, at=at, do=double)])
            out = model(x())
            change(rig)
            assert gradient(model, out) == PLAIN


def test_a_parameter_hook_added_between_forward_and_backward_fires():
    model = Squared()
    rig = th.attach(model, [])
    out = model(x())
    rig.add(th.Hook("d", on="inner.weight", at="grad", do=double))
    assert gradient(model, out) == 2 * PLAIN


def test_a_module_gradient_hook_added_between_forward_and_backward_fires_from_the_next_forward():
    model = Squared()
    rig = th.attach(model, [])
    out = model(x())
    rig.add(th.Hook("d", on="inner", at="grad_output", do=double))
    assert gradient(model, out) == PLAIN
    assert gradient(model, model(x())) == 2 * PLAIN


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("change", ["remove", "mute", "detach_other", "add"])
def test_a_recomputation_uses_the_hooks_of_its_forward(reentrant, change):
    model = Squared(reentrant)
    hook = th.Hook("d", on="inner", at="output", do=double)
    rig = th.attach(model, [] if change == "add" else [hook])
    out = model(x())
    if change == "add":
        rig.add(hook)
    elif change == "detach_other":
        th.attach(model, [th.Hook("other", on="inner", at="output", do=double)]).detach()
    else:
        getattr(rig, change)("d")
    assert gradient(model, out) == (PLAIN if change == "add" else DOUBLED)
    assert gradient(model, model(x())) == (DOUBLED if change in ("add", "detach_other") else PLAIN)


@pytest.mark.parametrize("reentrant", [True, False])
def test_two_graphs_with_a_change_between_them_each_recompute_their_own(reentrant):
    model = Squared(reentrant)
    rig = th.attach(model, [th.Hook("d", on="inner", at="output", do=double)])
    first = model(x())
    rig.remove("d")
    second = model(x())
    assert gradient(model, second) == PLAIN
    assert gradient(model, first) == DOUBLED
    del first, second
    assert gradient(model, model(x())) == PLAIN
    assert not model.inner._forward_hooks, "removed once no graph needs it"


@pytest.mark.parametrize("reentrant", [True, False])
def test_an_observer_does_not_look_twice_and_a_modifier_is_counted_once(reentrant):
    model = Squared(reentrant)
    seen = []
    rig = th.attach(model, [
        th.Hook("see", on="inner", at="output", do=lambda t: seen.append(t.item())),
        th.Hook("d", on="inner", at="output", do=double),
        th.Hook("stats", on="inner", at="output", do=th.stats()),
    ])  # fmt: skip
    assert gradient(model, model(x())) == DOUBLED
    assert seen == [3.0]
    assert [rig.ledger[h].fired for h in ("see", "d", "stats")] == [1, 1, 1]
    assert rig.values("stats")["inner"]["norm"] == 6.0


@pytest.mark.parametrize("reentrant", [True, False])
def test_noise_recomputes_the_same_and_leaves_the_global_generator_alone(reentrant):
    results = []
    for kind in (None, reentrant):
        model = Squared(kind)
        th.attach(model, [th.Hook("n", on="inner", at="output", do=th.noise(1.0))])
        before = torch.get_rng_state()
        results.append((gradient(model, model(x())), gradient(model, model(x()))))
        assert torch.equal(before, torch.get_rng_state())
    assert results[0] == results[1]
    assert results[0][0] != results[0][1] != PLAIN


def test_state_at_a_forward_point_is_frozen_for_the_step(mlp, sgd, train):
    read = []

    def count(t: Tensor, ctx: th.Context) -> Tensor:
        read.append(float(ctx.state.get("n", torch.zeros(()))))
        ctx.state["n"] = ctx.state.get("n", torch.zeros(())) + 1
        return t * 1.0

    th.attach(mlp, [th.Hook("c", on="head", at="output", do=count)], optimizer=sgd)
    train(mlp, sgd, 2, micro=2)
    assert read == [0, 0, 1, 1]


def test_state_at_a_backward_point_reads_its_own_writes(mlp, sgd, train):
    read = []

    def count(g: Tensor, ctx: th.Context) -> None:
        read.append(float(ctx.state.get("n", torch.zeros(()))))
        ctx.state["n"] = torch.as_tensor(read[-1] + 1)

    th.attach(mlp, [th.Hook("c", on="head.weight", at="grad", do=count)], optimizer=sgd)
    train(mlp, sgd, 2, micro=2)
    assert read == [0, 1, 2, 3]


def test_schedules(mlp, sgd, train):
    steps: dict[str, list[int]] = {}

    def at(name):
        return lambda t, ctx: steps.setdefault(name, []).append(ctx.step)

    whens = {"every": th.When(every=3), "late": th.When(start=4), "early": th.When(stop=2),
             "window": th.When(start=1, stop=6, every=2)}  # fmt: skip
    points = {"every": "output", "late": "grad", "early": "grad_final", "window": "grad_output"}
    targets = {"output": "head", "grad_output": "head", "grad": "head.weight", "grad_final": "head.weight"}
    rig = th.attach(mlp, [th.Hook(n, on=targets[points[n]], at=points[n], do=at(n), when=w) for n, w in whens.items()],
                    optimizer=sgd)  # fmt: skip
    train(mlp, sgd, 7)
    assert steps == {"every": [0, 3, 6], "late": [4, 5, 6], "early": [0, 1], "window": [1, 3, 5]}
    assert {n: rig.ledger[n].due for n in whens} == {"every": 3, "late": 3, "early": 2, "window": 3}


def test_an_idle_plan_leaves_nothing_on_modules_and_parameters(mlp, sgd, train):
    seldom = th.When(every=100, start=50)
    th.attach(mlp, [th.Hook(p, on="**", at=p, do=th.stats(), when=seldom)
                    for p in ("input", "output", "grad_input", "grad_output", "grad", "grad_accumulated")],
              optimizer=sgd)  # fmt: skip
    train(mlp, sgd, 2)
    assert [(f.target, f.ours) for f in th.inventory(mlp)] == [(".", ("the rig's root",))]


def test_observers_fire_in_training_and_modifiers_always(mlp):
    fired = {}
    rig = th.attach(mlp, [
        th.Hook("observe", on="head", at="output", do=th.stats()),
        th.Hook("modify", on="head", at="output", do=th.scale(1.0)),
        th.Hook("eval", on="head", at="output", do=th.stats(), when=th.When(phase="eval")),
        th.Hook("any", on="head", at="output", do=th.stats(), when=th.When(phase="any")),
    ])  # fmt: skip
    mlp.train()
    mlp(torch.ones(1, 4))
    mlp.eval()
    mlp(torch.ones(1, 4))
    fired = {h: rig.ledger[h].fired for h in rig.ledger}
    assert fired == {"observe": 1, "modify": 2, "eval": 1, "any": 2}
    assert rig.ledger["observe"].skipped == {"the root is in eval mode (When(phase='any') fires in both)": 1}


def test_after_trip_switches_on_for_the_steps_after_a_trigger(mlp, sgd):
    steps = []
    th.attach(mlp, [
        th.Hook("watch", on="head", at="output", do=th.watch_nonfinite()),
        th.Hook("look", on="head", at="output", do=lambda t, ctx: steps.append(ctx.step), when=th.When(after_trip=2)),
    ], optimizer=sgd)  # fmt: skip
    for step in range(6):
        sgd.zero_grad()
        mlp(torch.full((1, 4), torch.inf if step == 1 else 1.0))
        sgd.step()
    assert steps == [2, 3]


def test_revise_keeps_state_by_hook_id(mlp, sgd, train):
    clip = th.Hook("clip", on="**", at="grad_final", do=th.clip_zscore(warmup=1))
    rig = th.attach(mlp, [clip, th.Hook("old", on="**", at="grad", do=th.stats())], optimizer=sgd)
    train(mlp, sgd, 3)
    before = rig._attached_hook("clip").state.packed["mean"].clone()
    narrower = th.Hook("clip", on="head.*", at="grad_final", do=th.clip_zscore(warmup=1, z=3.0))
    rig.revise(th.Plan([narrower, th.Hook("new", on="**", at="output", do=th.stats())]))
    assert list(rig.ledger) == ["clip", "new"]
    assert torch.equal(rig._attached_hook("clip").state.packed["mean"], before[-2:])
    train(mlp, sgd, 1)
    assert rig.ledger["new"].fired and not mlp.first.weight._backward_hooks


def test_a_refused_revision_changes_nothing(mlp, sgd, train):
    rig = th.attach(mlp, [th.Hook("a", on="head.weight", at="grad", do=double)], optimizer=sgd)
    with pytest.raises(th.NoMatchError):
        rig.revise(th.Plan([th.Hook("b", on="nowhere", at="grad", do=double)]))
    train(mlp, sgd)
    assert rig.ledger["a"].changed == 1


def test_hooks_of_one_target_fire_in_plan_order_and_rigs_in_attach_order(mlp, sgd, train):
    calls = []

    def say(name):
        return lambda t: calls.append(name)

    rig = th.attach(mlp, [th.Hook("b", on="head", at="output", do=say("b"))], optimizer=sgd)
    th.attach(mlp, [th.Hook("c", on="head", at="output", do=say("c"))], optimizer=sgd)
    rig.revise(th.Plan([th.Hook("a", on="head", at="output", do=say("a")), *rig.plan]))
    train(mlp, sgd)
    assert calls == ["a", "b", "c"]


def test_output_modifiers_come_before_grad_output_whatever_the_order_of_adding(mlp):
    seen = []
    rig = th.attach(mlp, [th.Hook("g", on="head", at="grad_output", do=lambda g: seen.append(g.clone()))])
    rig.add(th.Hook("o", on="head", at="output", do=double))
    mlp(torch.ones(1, 4)).sum().backward()
    assert torch.equal(seen[0], torch.ones(1, 2)), "the gradient of the value that the modifier returned"
