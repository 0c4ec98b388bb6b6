"""Compare statistics and triggers with numbers that are computed by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import tenterhook as th


def by_hand(*tensors: Tensor) -> dict[str, float]:
    x = torch.cat([t.detach().flatten().double() for t in tensors])
    return {
        "norm": x.norm().item(),
        "rms": x.square().mean().sqrt().item(),
        "mean": x.mean().item(),
        "abs_max": x.abs().max().item(),
        "zeros": (x == 0).double().mean().item(),
        "nonfinite": (~x.isfinite()).sum().item(),
    }


def test_stats_merge_over_calls_and_leaves(mlp, sgd, train):
    seen: list[Tensor] = []
    rig = th.attach(mlp, [
        th.Hook("s", on="head", at="output", do=th.stats()),
        th.Hook("see", on="head", at="output", do=lambda t: seen.append(t)),
    ], optimizer=sgd)  # fmt: skip
    train(mlp, sgd, 1, micro=3)
    assert rig.values("s")["head"] == pytest.approx(by_hand(*seen), rel=1e-6)


def test_stats_are_of_the_last_step_only(mlp, sgd, train):
    rig = th.attach(mlp, [th.Hook("s", on="**", at="grad_final", do=th.stats())], optimizer=sgd)
    train(mlp, sgd, 3)
    for name, p in mlp.named_parameters():
        assert rig.values("s")[name] == pytest.approx(by_hand(p.grad), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_stats_of_other_precisions(dtype):
    model = nn.Linear(64, 64, bias=False).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, [th.Hook("s", on="weight", at="grad_final", do=th.stats())], optimizer=optimizer)
    model(torch.ones(2, 64, dtype=dtype)).sum().backward()
    optimizer.step()
    assert rig.values("s")["weight"] == pytest.approx(by_hand(model.weight.grad), rel=1e-5)


def test_nonfinite_elements_are_counted_not_hidden():
    model = nn.Identity()
    rig = th.attach(model, [th.Hook("s", on=".", at="output", do=th.stats())])
    model(torch.tensor([1.0, torch.nan, torch.inf, 0.0]))
    values = rig.values("s")["."]
    assert values["nonfinite"] == 2 and values["zeros"] == 0.25
    assert values["norm"] != values["norm"]


def test_a_histogram_counts_magnitudes_by_powers_of_two():
    model = nn.Identity()
    rig = th.attach(model, [th.Hook("h", on=".", at="output", do=th.histogram())])
    model(torch.tensor([1.0, 1.5, -2.0, 0.5, 0.0, torch.inf]))
    bins = rig.vectors("h")["."]["bins"]
    assert len(bins) == 64
    assert {i: n for i, n in enumerate(bins) if n} == {0: 1, 39: 1, 40: 2, 41: 1}


def test_a_spike_trips_after_its_warmup(mlp, sgd):
    looked = []
    rig = th.attach(mlp, [
        th.Hook("spike", on="head", at="output", do=th.spike(z=8.0)),
        th.Hook("look", on="head", at="output", do=lambda t, ctx: looked.append(ctx.step), when=th.When(after_trip=1)),
    ], optimizer=sgd)  # fmt: skip
    for step in range(32):
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(step))
        sgd.zero_grad()
        mlp.head(torch.cat([x, x], 1) * (1e4 if step == 30 else 1.0))
        sgd.step()
    assert looked == [31]
    assert rig.values("spike")["head"]["score"] < 8


def test_your_own_action_emits_with_call_and_leaf(mlp, sgd, train):
    registry = th.Registry()

    @th.action("top", registry=registry)
    def top(x: Tensor, ctx: th.Context, *, k: int = 1) -> None:
        ctx.emit("max", x.abs().flatten().topk(k).values[-1])

    rig = th.attach(mlp, [th.Hook("t", on="head", at="output", do=top(k=2))], optimizer=sgd, actions=registry)
    train(mlp, sgd, 1, micro=2)
    rows = rig.rows("t")
    assert [(r.step, r.target, r.name, r.call, r.leaf) for r in rows] == [
        (0, "head", "max", 0, 0),
        (0, "head", "max", 1, 0),
    ]
    assert [r.key for r in rows] == ["t/head/max", "t/head/max@1.0"]


def test_what_was_emitted_does_not_change_when_the_gradient_is_accumulated_into():
    model = nn.Linear(2, 1, bias=False, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, th.Hook("e", on="weight", at="grad", do=lambda g, ctx: ctx.emit("first", g[0, 0])),
                    optimizer=optimizer)  # fmt: skip
    for value in (1.0, 10.0):
        model(torch.full((1, 2), value, dtype=torch.float64)).sum().backward()
    optimizer.step()
    assert [row.value for row in rig.rows("e")] == [1.0, 10.0]


def test_a_tensor_that_is_spread_over_ranks_is_not_emitted():
    class Spread(torch.Tensor):
        """Has the method by which a DTensor is known."""

        def full_tensor(self) -> torch.Tensor:
            raise AssertionError("this communicates")

    number = torch.tensor(1.0).as_subclass(Spread)
    model = nn.Linear(2, 1)
    th.attach(model, th.Hook("e", on="weight", at="grad", do=lambda g, ctx: ctx.emit("n", number), on_error="raise"))
    with pytest.raises(th.ContractError, match="emit received a DTensor, which is spread over ranks"):
        model(torch.ones(1, 2)).sum().backward()
