"""`find_nonfinite` names the module that produced the first NaN or infinity; `watch` skips unavailable statistics."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import tenterhook as th
from tests.rig.test_leaving import traces


class Do(nn.Module):
    """Applies a function to its input, and has no submodules."""

    def __init__(self, do: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.do = do

    def forward(self, x: Tensor) -> Tensor:
        return self.do(x)


class Between(nn.Module):
    """Has two linear layers that double a row of ones, and runs code between them."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.a = nn.Linear(2, 2, bias=False)
        self.b = nn.Linear(2, 2, bias=False)
        nn.init.ones_(self.a.weight)
        nn.init.ones_(self.b.weight)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.between(self.a(x)))


def ones() -> Tensor:
    return torch.ones(1, 2)


def by_zero(x: Tensor) -> Tensor:
    return x / 0


def root_of_zero(x: Tensor) -> Tensor:
    """Return zero, with a gradient that is NaN."""
    return (x * 0).sqrt()


def found(model: nn.Module, run: Callable[[], object]) -> th.NonFiniteError:
    with pytest.raises(th.NonFiniteError) as caught, th.find_nonfinite(model):
        run()
    assert len(th.inventory(model)) == 0
    return caught.value


REMEDY = "\n  remedy: check the .inputs of this error, and the parameters of the target"


def test_forward_in_a_module():
    model = nn.Sequential(nn.Identity(), nn.Sequential(Do(by_zero), nn.ReLU()))
    error = found(model, lambda: model(ones()))
    assert str(error) == (
        "hook 'nonfinite.output' at output on '1.0': this is the first output that is not finite "
        "(0 NaN and 2 infinite values out of 2). The largest magnitude of its inputs is 1" + REMEDY
    )
    assert (error.hook, error.target, error.point) == ("nonfinite.output", "1.0", "output")
    assert [t.tolist() for t in error.inputs] == [[[1.0, 1.0]]]


def test_forward_in_code_between_modules():
    model = Between(lambda h: h * torch.nan)
    error = found(model, lambda: model(ones()))
    assert (error.target, error.point) == ("b", "input")
    assert error.fact == (
        "an input is NaN: code before this module produced it (2 NaN and 0 infinite values out of 2). "
        "The largest magnitude of its inputs is nan"
    )


def test_an_infinity_made_between_modules_shows_among_the_inputs_of_the_module_where_it_becomes_nan():
    model = Between(lambda h: h * torch.tensor([torch.inf, -torch.inf]))
    error = found(model, lambda: model(ones()))
    assert (error.target, error.point) == ("b", "output")
    assert error.fact == (
        "this is the first output that is not finite (2 NaN and 0 infinite values out of 2). "
        "The largest magnitude of its inputs is inf"
    )
    assert [t.tolist() for t in error.inputs] == [[[torch.inf, -torch.inf]]]


def test_forward_in_code_after_the_last_module():
    model = nn.Sequential(Between(torch.tanh))
    model.forward = lambda x: by_zero(model[0](x))
    error = found(model, lambda: model(ones()))
    assert (error.target, error.point) == (".", "output")


def test_nan_in_the_batch():
    model = Between(torch.tanh)
    error = found(model, lambda: model(torch.tensor([[1.0, torch.nan]])))
    assert (error.target, error.point) == (".", "input")
    assert error.fact.startswith("an input is NaN: the caller passed it (1 NaN and 0 infinite values out of 2)")


def test_backward_in_a_module():
    model = nn.Sequential(nn.Linear(2, 2), Do(root_of_zero), nn.Tanh())
    error = found(model, lambda: model(ones()).sum().backward())
    assert (error.target, error.point) == ("1", "grad_input")
    assert error.fact == (
        "this is the first gradient that is not finite: this module's backward pass produced it "
        "(2 NaN and 0 infinite values out of 2)"
    )


def test_backward_in_code_between_modules():
    model = Between(root_of_zero)
    error = found(model, lambda: model(ones()).sum().backward())
    assert (error.target, error.point) == ("a", "grad_output")
    assert error.fact == (
        "this is the first gradient that is not finite: code that uses this module's output produced it "
        "(2 NaN and 0 infinite values out of 2)"
    )


def test_backward_from_the_loss():
    model = Between(torch.tanh)
    error = found(model, lambda: root_of_zero(model(ones())).sum().backward())
    assert error.point == "grad_output"
    assert error.target in (".", "b"), "both return the same tensor"
    assert "code that uses this module's output produced it" in error.fact


def test_the_gradient_of_a_weight():
    model = Between(lambda h: h * 1e30)
    nn.init.zeros_(model.a.weight)
    error = found(model, lambda: model(ones() * 1e30).sum().backward())
    assert (error.target, error.point) == ("a.weight", "grad")
    assert error.fact == (
        "this is the first gradient that is not finite: "
        "the backward pass of the module that owns this parameter produced it (0 NaN and 4 infinite values out of 4)"
    )


def test_the_sparse_gradient_of_an_embedding():
    model = nn.Sequential(nn.Embedding(4, 2, sparse=True))
    rows = torch.tensor([1, 1])
    with th.find_nonfinite(model):
        model(rows).sum().backward()
    assert model[0].weight.grad.coalesce().values().tolist() == [[2.0, 2.0]]
    error = found(model, lambda: (model(rows) * 3e38).sum().backward())
    assert (error.target, error.point) == ("0.weight", "grad")
    assert error.fact.endswith("(0 NaN and 2 infinite values out of 2)")


def test_a_module_that_works_in_place_is_supported():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True), nn.Linear(2, 1))
    with th.find_nonfinite(model) as rig:
        model(ones()).sum().backward()
    assert rig.ledger["nonfinite.grad_output"].fired == 4
    with torch.no_grad():
        model[2].weight.fill_(1e30)
    error = found(model, lambda: (model(ones()) * 1e30).sum().backward())
    assert (error.target, error.point) == ("2", "grad_input")


def test_an_attention_mask_is_meant():
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    assert mask.isinf().any()
    with th.find_nonfinite(model) as rig:
        model(torch.ones(1, 3, 8), mask=mask).sum().backward()
    assert rig.ledger["nonfinite.grad"].fired == len(list(model.parameters()))
    nn.init.constant_(model.layers[0].linear2.weight, torch.nan)
    error = found(model, lambda: model(torch.ones(1, 3, 8), mask=mask))
    assert (error.target, error.point) == ("layers.0.linear2", "output")


def test_masked_scores_before_a_softmax_are_meant():
    model = Between(lambda h: h.masked_fill(torch.tensor([True, False]), -torch.inf))
    model.b = nn.Softmax(-1)
    with th.find_nonfinite(model):
        assert model(ones()).tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_after_the_block(mlp, sgd, train, fails):
    train(mlp, sgd)
    before = traces(mlp, sgd)
    x = torch.full((1, 4), torch.nan if fails else 1.0)
    try:
        with th.find_nonfinite(mlp):
            mlp(x).sum().backward()
    except th.NonFiniteError:
        assert fails
    else:
        assert not fails
    assert traces(mlp, sgd) == before


def test_nothing_is_left_after_an_error_in_the_backward(mlp, sgd, train):
    train(mlp, sgd)
    before = traces(mlp, sgd)
    found(mlp, lambda: (mlp(torch.ones(1, 4)) / 0).sum().backward())
    assert traces(mlp, sgd) == before
    train(mlp, sgd)


# -- watch ------------------------------------------------------------------------------------------------------------


def test_watch_a_single_layer():
    model = nn.Linear(2, 2, bias=False)
    nn.init.ones_(model.weight)
    rig = th.watch(model)
    model(ones()).sum().backward()
    assert rig.values("grads")["weight"]["norm"] == 2.0
    assert rig.values("outputs")["."]["abs_max"] == 2.0


def test_watch_a_model_with_a_sparse_gradient_mutes_that_site_alone():
    model = nn.Sequential(nn.Embedding(4, 2, sparse=True), nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.watch(model, optimizer)
    with pytest.warns(RuntimeWarning) as warned:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.tensor([1, 2])).sum().backward()
            optimizer.step()
    assert [str(w.message) for w in warned] == [
        "tenterhook muted a hook at one target. hook 'grads' at grad_final on '0.weight': "
        "statistics do not support sparse tensors\n"
        "  remedy: exclude the target, or use your own function as the action\n"
        "  note: the same error at other targets is not reported again"
    ]
    assert rig.ledger["grads"].dormant == {"0.weight": "muted: statistics do not support sparse tensors"}
    assert {name: site.fired for name, site in rig.ledger["grads"].items()} == {
        "0.weight": 0, "1.weight": 2, "1.bias": 2,
    }  # fmt: skip
    assert rig.values("grads").keys() == {"1.weight", "1.bias"}
    assert rig.values("updates").keys() == {"0.weight", "1.weight", "1.bias"}


def test_watch_a_model_that_returns_whole_numbers():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), Do(lambda x: x.topk(2)))
    nn.init.eye_(model[0].weight)
    rig = th.watch(model)
    values, indices = model(torch.tensor([[3.0, 4.0]]))
    assert indices.tolist() == [[1, 0]]
    values.sum().backward()
    assert rig.ledger["outputs"].failed == 0
    assert {t: (row["norm"], row["abs_max"]) for t, row in rig.values("outputs").items()} == {
        ".": (26**0.5, 4.0), "0": (5.0, 4.0), "1": (26**0.5, 4.0),
    }  # fmt: skip
