"""Checks the data of hooks: state, captured tensors, the numbers of a step, and the rows for sinks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import tenterhook as th


def twos() -> nn.Linear:
    """Return a layer that maps a row of ones to 2. The gradients of the sum of its outputs are 1 for each row."""
    model = nn.Linear(2, 2, bias=False)
    nn.init.ones_(model.weight)
    return model


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = twos()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.inner(x))


class Tapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = twos()

    def forward(self, x: Tensor) -> Tensor:
        return th.tap(self.inner(x), "p", within=self)


def still(module: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(module.parameters(), lr=0.0)


def backward(model: nn.Module, rows: int = 1) -> None:
    model.zero_grad()
    model(torch.ones(rows, 2)).sum().backward()


# -- state ------------------------------------------------------------------------------------------------------------


@th.action("add_up", at=["output", "grad", "value_grad"], state={"n": 0.0})
def add_up(x: Tensor, ctx: th.Context, *, k: float = 1.0) -> None:
    ctx.state["n"] = ctx.state["n"] + k


def n(rig: th.Rig) -> list[float]:
    return rig._attached_hook("h").state.packed["n"].tolist()


def test_a_revision_of_a_tap_hook_keeps_its_state():
    model = Tapped()
    optimizer = still(model)
    rig = th.attach(model, [th.Hook("h", on="**", at="value_grad", do=th.clip_zscore(z=2.0))], optimizer=optimizer)
    for _ in range(3):
        backward(model, rows=8)
        optimizer.step()
    assert rig._attached_hook("h").state.packed["seen"].tolist() == [3.0]
    rig.revise(th.Plan([th.Hook("h", on="**", at="value_grad", do=th.clip_zscore(z=3.0))]))
    backward(model, rows=8)
    optimizer.step()
    assert rig._attached_hook("h").state.packed["seen"].tolist() == [4.0]
    assert rig._attached_hook("h").state.packed["mean"].tolist() == [4.0]


def test_a_revision_in_the_middle_of_a_step_keeps_what_was_written_in_it():
    model = twos()
    optimizer = still(model)
    rig = th.attach(model, [th.Hook("h", on=".", at="output", do=add_up())], optimizer=optimizer)
    backward(model)
    optimizer.step()
    assert n(rig) == [1.0]
    backward(model)
    rig.revise(th.Plan([th.Hook("h", on=".", at="output", do=add_up(k=5.0))]))
    optimizer.step()
    assert n(rig) == [2.0]
    backward(model)
    optimizer.step()
    assert n(rig) == [7.0]


def test_another_action_under_the_same_id_starts_with_new_state():
    model = twos()
    optimizer = still(model)
    rig = th.attach(model, [th.Hook("h", on="weight", at="grad", do=add_up())], optimizer=optimizer)
    backward(model)
    assert n(rig) == [1.0]
    rig.revise(th.Plan([th.Hook("h", on="weight", at="grad", do=th.clip_zscore())]))
    backward(model)
    assert rig._attached_hook("h").state.packed["seen"].tolist() == [1.0]


def test_state_at_a_forward_point_cannot_be_changed_under_the_step_by_writing_into_it():
    read = []

    @th.action("write_into_state", at=["output"], state={"n": 0.0})
    def write_into_state(x: Tensor, ctx: th.Context) -> None:
        read.append(ctx.state["n"].item())
        ctx.state["n"].add_(1)

    model = Twice()
    rig = th.attach(model, [th.Hook("h", on="inner", at="output", do=write_into_state)])
    backward(model)
    backward(model)
    assert read == [0.0] * 4
    assert n(rig) == [0.0]


# -- numbers of a step ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("on", "at"), [(".", "output"), ("weight", "grad"), ("weight", "grad_accumulated")])
def test_measurements_before_a_mute_belong_to_their_own_step(on, at):
    model = twos()
    optimizer = still(model)
    rig = th.attach(model, [th.Hook("h", on=on, at=at, do=th.stats())], optimizer=optimizer)
    norm = {"output": lambda rows: (8 * rows) ** 0.5}.get(at, lambda rows: 2.0 * rows)
    backward(model, rows=8)
    rig.mute("h")
    optimizer.step()
    assert rig.values("h")[on]["norm"] == norm(8)
    backward(model, rows=32)
    optimizer.step()
    assert rig.values("h")[on]["norm"] == norm(8), "a muted hook keeps the values of its last due step"
    rig.unmute("h")
    backward(model, rows=2)
    optimizer.step()
    assert rig.values("h")[on]["norm"] == norm(2)


def test_statistics_merge_over_calls_and_leaves_of_a_step():
    class Pair(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            return x * 3, {"a": torch.stack([x.sum() * 0, x.sum() * 4])}

    model = nn.Sequential(Pair())
    rig = th.attach(model, [th.Hook("h", on="0", at="output", do=th.stats())])
    with rig.step():
        model(torch.ones(1))
        model(torch.ones(1))
    assert rig.values("h") == {
        "0": {"norm": 50**0.5, "rms": 50**0.5 / 6**0.5, "mean": 14 / 6, "abs_max": 4.0, "zeros": 2 / 6, "nonfinite": 0}
    }


def tell(x: Tensor, ctx: th.Context) -> None:
    ctx.emit("sum", x.sum())


def test_emitted_rows_carry_step_call_and_leaf():
    class Pair(nn.Module):
        def forward(self, x: Tensor) -> list[Tensor]:
            return [x, x * 10]

    model = nn.Sequential(Pair())
    rig = th.attach(model, [th.Hook("h", on="0", at="output", do=tell)])
    for step in range(2):
        with rig.step():
            model(torch.ones(1))
            model(torch.full((1,), 2.0))
        rows = rig.rows("h")
        assert [(r.step, r.rank, r.hook, r.target, r.name, r.value, r.call, r.leaf) for r in rows] == [
            (step, 0, "h", "0", "sum", 1.0, 0, 0),
            (step, 0, "h", "0", "sum", 10.0, 0, 1),
            (step, 0, "h", "0", "sum", 2.0, 1, 0),
            (step, 0, "h", "0", "sum", 20.0, 1, 1),
        ]


def test_gradient_rows_carry_the_call_whose_gradient_it_is():
    model = Twice()
    rig = th.attach(model, [th.Hook("h", on="inner", at="grad_output", do=tell)])
    backward(model)
    assert [(r.call, r.value) for r in rig.rows("h")] == [(1, 2.0), (0, 4.0)]
    assert rig.values("h") == {"inner": {"sum": 4.0}}


def test_an_emitted_number_is_that_of_its_firing_though_the_tensor_changes():
    kept = torch.ones(())

    def again(x: Tensor, ctx: th.Context) -> None:
        ctx.emit("kept", kept)
        kept.add_(1)

    model = Twice()
    rig = th.attach(model, [th.Hook("h", on="inner", at="output", do=again)])
    backward(model)
    assert [r.value for r in rig.rows("h")] == [1.0, 2.0]


def test_asking_for_a_hook_that_is_not_there():
    rig = th.attach(twos(), [th.Hook("norms", on=".", at="output", do=th.stats())])
    for ask in (rig.values, rig.rows, rig.captured):
        with pytest.raises(th.AttachedError) as caught:
            ask("norm")
        assert str(caught.value) == (
            "hook 'norm': the rig has no hook with this id\n  remedy: use the nearest id, 'norms'"
        )  # fmt: skip


# -- captured ---------------------------------------------------------------------------------------------------------


def test_captured_lists_every_call_of_the_last_step_only():
    model = Twice()
    rig = th.attach(model, [th.Hook("c", on=(".", "inner"), at="output", do=th.capture())])
    backward(model, rows=2)
    backward(model)
    captured = rig.captured("c")
    assert [t.tolist() for t in captured["."]] == [[[4.0, 4.0]]]
    assert [t.tolist() for t in captured["inner"]] == [[[2.0, 2.0]], [[4.0, 4.0]]]


def test_a_captured_tensor_is_a_copy():
    model = nn.Sequential(twos(), nn.ReLU(inplace=True))
    rig = th.attach(model, [th.Hook("c", on="0", at="output", do=th.capture())])
    out = model(-torch.ones(1, 2))
    assert out.tolist() == [[0.0, 0.0]]
    assert rig.captured("c")["0"][0].tolist() == [[-2.0, -2.0]]


def test_captured_tensors_of_one_step_are_bounded():
    model = nn.Identity()
    rig = th.attach(model, [th.Hook("c", on=".", at="output", do=th.capture())])
    value = torch.ones(1)
    with rig.step():
        for _ in range(4096 + 4):
            model(value)
    assert len(rig.captured("c")["."]) == 4096
    assert str(rig).startswith("rig: 1 step; 4 rows or captures exceeded the limit per step and were dropped\n")


def test_capture_keeps_one_leaf_and_no_more_than_the_bound():
    class Pair(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x * 2, x * 3

    model = Pair()
    hooks = [
        th.Hook("second", on=".", at="output", do=th.capture(leaf=1, to="cpu")),
        th.Hook("two", on=".", at="output", do=th.capture(most=2)),
    ]
    rig = th.attach(model, hooks)
    with rig.step():
        for value in (1.0, 5.0):
            model(torch.full((1,), value))
    assert [t.tolist() for t in rig.captured("second")["."]] == [[3.0], [15.0]]
    assert [t.tolist() for t in rig.captured("two")["."]] == [[2.0], [3.0]]
    assert "2 rows or captures exceeded" in str(rig)


# -- sinks ------------------------------------------------------------------------------------------------------------


def test_sinks_are_given_keys_of_hook_target_and_name_and_the_step():
    model = Twice()
    optimizer = still(model)
    log: list[tuple[dict[str, float], int]] = []
    rig = th.attach(
        model,
        [
            th.Hook("s", on="inner.weight", at="grad_final", do=th.stats()),
            th.Hook("e", on="inner", at="output", do=tell, when=th.When(every=2)),
        ],
        optimizer=optimizer,
        sinks=[lambda entries, step: log.append((entries, step))],
    )
    for _ in range(2):
        backward(model)
        optimizer.step()
    assert rig.flush()
    stats = {"norm": 8.0, "rms": 4.0, "mean": 4.0, "abs_max": 4.0, "zeros": 0.0, "nonfinite": 0.0}
    numbers = {f"s/inner.weight/{name}": value for name, value in stats.items()}
    assert log == [({**numbers, "e/inner/sum": 4.0, "e/inner/sum@1.0": 8.0}, 0), (numbers, 1)]
    assert rig.values("s") == {"inner.weight": stats}


def test_a_sink_that_raises_is_reported_and_training_continues(mlp, sgd, train):
    steps = []

    def full(entries: dict[str, float], step: int) -> None:
        raise OSError("disk full")

    rig = th.attach(
        mlp,
        [th.Hook("s", on="**", at="grad_final", do=th.stats())],
        optimizer=sgd,
        sinks=[full, lambda entries, step: steps.append(step)],
    )
    with pytest.warns(RuntimeWarning) as warned:
        train(mlp, sgd, 3)
        assert rig.flush()
    assert len(warned) == 1
    assert str(warned[0].message).endswith(".full raised OSError('disk full'), so its rows are dropped")
    assert steps == [0, 1, 2]
    assert rig.step_count == 3


# -- inference mode ---------------------------------------------------------------------------------------------------


@torch.inference_mode()
def test_inference_mode():
    model = twos()
    seen = []
    always = th.When(phase="any")
    rig = th.attach(
        model,
        [
            th.Hook("plain", on=".", at="output", do=lambda t: seen.append(t.sum().item())),
            th.Hook("kept", on=".", at="output", do=th.capture(), when=always),
            th.Hook("stats", on=".", at="output", do=th.stats(), when=always),
            th.Hook("twice", on=".", at="output", do=th.scale(2.0)),
            th.Hook("gradient", on=".", at="grad_output", do=th.stats()),
        ],
    )
    assert model(torch.ones(1, 2)).tolist() == [[4.0, 4.0]]
    assert seen == [4.0]
    assert rig.captured("kept")["."][0].tolist() == [[2.0, 2.0]]
    assert rig.values("stats")["."]["abs_max"] == 2.0
    assert rig.ledger["twice"].changed == 1
    assert rig.ledger["gradient"].skipped == {
        "gradients were disabled in this call (inside a reentrant checkpoint, the hook fires in the recomputation)": 1
    }


# -- noise ------------------------------------------------------------------------------------------------------------


class Sum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = twos(), twos()

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) + self.b(x)


def noises(at: str, **params: int) -> list[Tensor]:
    """Return the noise at the sites a and b, in two forwards and backwards."""
    model = Sum()
    on = ("a", "b") if at == "output" else ("a.weight", "b.weight")
    kept: list[Tensor] = []
    see = th.Hook("see", on=on, at=at, do=lambda t: kept.append(t.detach().clone()))
    th.attach(model, [th.Hook("n", on=on, at=at, do=th.noise(1.0, **params)), see])
    before = torch.get_rng_state()
    for _ in range(2):
        backward(model)
    assert torch.equal(torch.get_rng_state(), before), "the global generator must not change"
    return kept


@pytest.mark.parametrize("at", ["output", "grad"])
def test_noise_is_the_same_in_every_run_and_different_everywhere_else(at):
    first, again, other = noises(at), noises(at), noises(at, seed=1)
    assert len(first) == 4
    assert all(map(torch.equal, first, again))
    different = [*first, *other]
    for i, one in enumerate(different):
        assert not any(torch.equal(one, two) for two in different[i + 1 :])


def failing(act, **contract) -> str:
    """Return the error text of a modifier that calls `act` on its state."""
    registry = th.Registry()

    @th.action("own", modifies=True, registry=registry, **contract)
    def own(x: Tensor, ctx: th.Context) -> Tensor:
        act(ctx.state, x)
        return x

    model = twos()
    th.attach(model, th.Hook("h", on="weight", at="grad", do=own()), actions=registry)
    with pytest.raises(th.TenterhookError) as error:
        model(torch.ones(1, 2)).sum().backward()
    return str(error.value)


def test_reading_a_state_that_was_never_written_raises_with_the_remedy():
    message = "state 'mean' is not set yet. Use ctx.state.get('mean'), or declare it with @th.action(state={...})"
    assert message in failing(lambda state, x: state["mean"])


def test_a_declared_state_is_one_number():
    def put(state, x) -> None:
        state["mean"] = x

    said = failing(put, state={"mean": 0.0})
    assert "the declared state 'mean' must be a single number, but has shape (2, 2)" in said
    assert "store the tensor under a name that is not declared" in said
