"""Checks `grad_input` for observers: the contribution of one call, computed without changing the graph."""

from __future__ import annotations

import gc
import warnings
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import tenterhook as th


class Around(nn.Module):
    """Has the observed module between two layers."""

    def __init__(self, m: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.pre, self.m, self.post = nn.Linear(4, 4), m, nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.post(self.m(self.pre(x)))


def norm(rig: th.Rig) -> float:
    return rig.values("g")["m"]["norm"]


def observed(model: nn.Module, **options) -> th.Rig:
    return th.attach(model, th.Hook("g", on="m", at="grad_input", do=th.stats()), **options)


def by_pytorch(model: nn.Module) -> float:
    seen: list[Tensor] = []
    handle = model.m.register_full_backward_hook(lambda m, grad_input, grad_output: seen.append(grad_input[0]))
    model(torch.ones(2, 4)).square().sum().backward()
    handle.remove()
    return sum(g.double().square().sum() for g in seen).sqrt().item()


def test_it_equals_pytorchs_own_hook_also_when_both_are_registered():
    model = Around(nn.Linear(4, 4))
    expected = by_pytorch(model)
    rig = observed(model)
    model(torch.ones(2, 4)).square().sum().backward()
    assert norm(rig) == pytest.approx(expected, rel=1e-6)
    assert by_pytorch(model) == expected
    assert norm(rig) == pytest.approx(expected, rel=1e-6) and rig.ledger["g"].fired == 2


def test_arguments_that_a_later_hook_replaces_are_still_this_calls():
    model = Around(nn.Linear(4, 4))
    rig = observed(model)
    model.m.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    other = th.attach(model, th.Hook("scale", on="m", at="grad_input", do=th.scale(3.0)))
    model(torch.ones(2, 4)).square().sum().backward()
    assert rig.ledger["g"].fired == other.ledger["scale"].fired == 1


class Auxiliary(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        self.aux = (x**2).sum()
        return x * 3


def test_a_loss_that_the_module_keeps_for_later_counts():
    seen = []
    plain, model = Around(Auxiliary()), Around(Auxiliary())
    plain.m.register_full_backward_hook(lambda m, grad_input, grad_output: seen.append(grad_input[0].norm().item()))
    rig = observed(model)
    for one in (plain, model):
        (one(torch.ones(2, 4)).sum() + one.m.aux).backward()
    assert norm(rig) == pytest.approx(seen[0], rel=1e-6)


class Boxed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.detach() * 3


def test_an_unused_input_is_counted_as_skipped():
    model = Around(Boxed())
    rig = observed(model)
    model(torch.ones(2, 4)).sum().backward()
    assert rig.ledger["g"].skipped == {"no output of this call was computed from this input": 1}


class Recursive(nn.Module):
    def forward(self, x: Tensor, deep: bool = False) -> Tensor:
        return x * 2 if deep else self(x, deep=True) + x


def test_a_module_that_calls_itself_fires_for_each_call():
    model = Around(Recursive())
    rig = th.attach(model, th.Hook("g", on="m", at="grad_input", do=th.capture()))
    model(torch.ones(2, 4)).sum().backward()
    inner, outer = sorted(g.norm().item() for g in rig.captured("g")["m"])
    assert outer == pytest.approx(1.5 * inner)


def test_nothing_is_left_on_tensors_even_when_a_recomputation_stops_early_or_a_forward_raises():
    class Stops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q = nn.Parameter(torch.ones(4))
            self.m = nn.Bilinear(4, 4, 4)
            self.broken = False

        def forward(self, x: Tensor) -> Tensor:
            q = self.q.expand(2, 4)
            if self.broken:
                return self.m(x, q[:, :2])
            return checkpoint(self.m, x, q, use_reentrant=False)

    model = Stops()
    rig = observed(model)
    x = torch.ones(2, 4, requires_grad=True)
    model(x).exp().sum().backward()
    model.broken = True
    with pytest.raises(RuntimeError):
        model(x)
    model.broken = False
    model(x).exp().sum().backward()
    assert rig.ledger["g"]["m"].fired == 4
    assert vars(x) == {} == vars(model.q)


@pytest.mark.parametrize("backward", [False, True])
def test_a_graph_is_freed_by_reference_counting(backward):
    class Kept(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.token = nn.Module()
            tokens.append(weakref.ref(ctx.token))
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g

    tokens: list = []
    model = Around(nn.Linear(4, 4))
    observed(model)
    gc.disable()
    try:
        for _ in range(3):
            loss = model.post(model.m(Kept.apply(model.pre(torch.ones(2, 4))))).sum()
            if backward:
                loss.backward()
            del loss
        assert [token() for token in tokens] == [None] * 3
    finally:
        gc.enable()


class SparseAndDense(nn.Module):
    def forward(self, w: Tensor) -> Tensor:
        dense = functional.linear(torch.ones(1, 4), w).sum()
        return functional.embedding(torch.tensor([1]), w, sparse=True).sum() + dense


def test_sparse_and_dense_shares_add_up():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.m = nn.Parameter(torch.ones(3, 4)), SparseAndDense()

        def forward(self) -> Tensor:
            return self.m(self.w)

    model = Model()
    rig = th.attach(model, th.Hook("g", on="m", at="grad_input", do=th.capture()))
    model().backward()
    assert torch.equal(rig.captured("g")["m"][0].to_dense(), torch.tensor([[1.0], [2.0], [1.0]]).expand(3, 4))


class Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, x * 3


def test_a_backward_inside_a_backward_has_its_own_sum():
    m = Pair()
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    rig = th.attach(m, th.Hook("g", on=".", at="grad_input", do=th.capture()), optimizer=optimizer)
    h = torch.ones(8, requires_grad=True) * 1
    a, b = m(h)
    once, total = [True], b.sum()

    def inner(g: Tensor) -> None:
        if once:
            once.clear()
            torch.autograd.grad(total, h, retain_graph=True)

    a.register_hook(inner)
    (a.sum() + total).backward(retain_graph=True)
    assert sorted(g.sum().item() for g in rig.captured("g")["."]) == [24.0, 40.0]


def test_gradients_taken_without_filling_any_are_not_an_abandoned_step():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    rig = th.attach(net, [th.Hook("s", on="0", at="grad_output", do=th.stats()),
                          th.Hook("k", on="0", at="grad_output", do=th.capture())], optimizer=optimizer)  # fmt: skip
    for _ in range(2):
        x = torch.ones(2, 4, requires_grad=True)
        (g,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        loss = net(torch.ones(3, 4)).sum() + g.pow(2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        kept = torch.cat([t.flatten() for t in rig.captured("k")["0"]])
        assert rig.values("s")["0"]["norm"] == pytest.approx(kept.norm().item(), rel=1e-6)
    assert rig.ledger["s"].skipped == {}


def test_a_step_in_which_it_fired_before_it_was_muted_was_due(mlp, sgd, train):
    rig = th.attach(mlp, th.Hook("g", on="head.weight", at="grad", do=th.stats()), optimizer=sgd)
    mlp(torch.ones(1, 4)).sum().backward()
    rig.mute("g")
    sgd.step()
    rig.unmute("g")
    mlp(torch.ones(1, 4)).sum().backward()
    rig.mute("g")
    rig.unmute("g")
    sgd.step()
    train(mlp, sgd, 1)
    assert (rig.ledger["g"].due, rig.ledger["g"].fired) == (3, 3)


@pytest.mark.parametrize("at", ["grad", "grad_accumulated"])
@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("before_forward", [True, False])
def test_a_step_that_the_scaler_skipped_leaves_no_statistics(mlp, sgd, at, to_none, before_forward):
    rig = th.attach(mlp, [th.Hook("g", on="head.weight", at=at, do=th.stats(), when=th.When(phase="any")),
                          th.Hook("k", on="head.weight", at=at, do=th.capture())], optimizer=sgd)  # fmt: skip
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for step in range(3):
        if before_forward:
            sgd.zero_grad(set_to_none=to_none)
        loss = mlp(torch.full((1, 4), torch.inf if step == 1 else 1.0)).sum()
        if not before_forward:
            sgd.zero_grad(set_to_none=to_none)
        scaler.scale(loss).backward()
        scaler.step(sgd)
        scaler.update()
    assert rig.step_count == 2
    assert rig.ledger["g"].skipped == {"the gradients were cleared without a step": 1}
    assert rig.values("g")["head.weight"]["norm"] == pytest.approx(rig.captured("k")["head.weight"][-1].norm().item())


@pytest.mark.parametrize("at", ["grad", "grad_accumulated"])
@pytest.mark.parametrize("create_graph", [True, False])
def test_accumulated_gradients_are_not_cleared_ones(mlp, sgd, at, create_graph):
    """Accumulate gradients that another rig replaces."""
    th.attach(mlp, th.Hook("double", on="**", at="grad_accumulated", do=th.scale(2.0)))
    rig = th.attach(mlp, [th.Hook("g", on="head.weight", at=at, do=th.stats()),
                          th.Hook("k", on="head.weight", at=at, do=th.capture())], optimizer=sgd)  # fmt: skip
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Using backward.. with create_graph=True")
        for _ in range(2):
            sgd.zero_grad()
            for _ in range(3):
                mlp(torch.ones(1, 4)).sum().backward(create_graph=create_graph)
            sgd.step()
            kept = torch.cat([one.flatten() for one in rig.captured("k")["head.weight"]])
            assert rig.values("g")["head.weight"]["norm"] == pytest.approx(kept.norm().item())
    assert not rig.ledger["g"].skipped


def test_a_second_optimizer_may_clear_its_gradients_after_its_step():
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    model = nn.ModuleList([first, second])
    one, two = (torch.optim.SGD(part.parameters(), lr=0.1) for part in model)
    rig = th.attach(model, th.Hook("g", on="**", at="grad", do=th.stats()), optimizer={"one": one, "two": two})
    for _ in range(2):
        for optimizer, part in ((one, first), (two, second)):  # the step ends with the second one
            part(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert set(rig.values("g")) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert not rig.ledger["g"].skipped


def test_an_input_without_a_tensor_is_counted_as_skipped():
    class Constant(nn.Module):
        def forward(self) -> Tensor:
            return torch.ones(1)

    model = Constant()
    rig = th.attach(model, th.Hook("i", on=".", at="input", do=th.stats()))
    model()
    assert rig.ledger["i"].skipped == {"no tensor was found in the input (type: tuple)": 1}
