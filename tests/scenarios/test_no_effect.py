"""Compares plain PyTorch with tenterhook on W1, W2, W3 and W5: why a hook does not modify the gradient."""

import pytest
import torch
from torch import Tensor, nn

import tenterhook as th


def number(value: float) -> Tensor:
    return torch.tensor(value, requires_grad=True)


def test_w1_doubling_in_the_middle_doubles_what_reaches_the_leaf() -> None:
    bare, plain, ours = number(2.0), number(2.0), number(2.0)
    (3 * bare**2).backward()
    y = plain**2
    y.register_hook(lambda g: g * 2)
    (3 * y).backward()
    y = ours**2
    handle = th.hook(y, lambda g: g * 2)
    (3 * y).backward()
    assert bare.grad == 12.0
    assert plain.grad == ours.grad == 24.0
    assert handle.changed == 1


def test_w2_a_clamp_in_the_middle_does_not_clamp_the_leaf() -> None:
    plain, ours = number(10.0), number(10.0)
    y = plain**2
    y.register_hook(lambda g: g.clamp(-1.0, 1.0))
    (3 * y).backward()
    y = ours**2
    th.hook(y, th.clip_value(1.0))
    (3 * y).backward()
    assert plain.grad == ours.grad == 20.0


def test_w3_two_uses_are_seen_as_one_sum() -> None:
    plain, ours = number(2.0), number(2.0)
    seen_plain: list[float] = []
    seen_ours: list[float] = []
    y = plain**2
    y.register_hook(lambda g: seen_plain.append(g.item()) or g * 0.5)
    (3 * y + 2 * y).backward()
    y = ours**2
    th.hook(y, lambda g: seen_ours.append(g.item()) or g * 0.5)
    (3 * y + 2 * y).backward()
    assert seen_plain == seen_ours == [5.0]
    assert plain.grad == ours.grad == 10.0


def zero(grad: Tensor) -> None:
    grad.zero_()


def weights() -> Tensor:
    return torch.tensor([1.0, 2.0, 3.0])


def test_w5_an_edit_in_place_corrupts_a_sibling_in_pytorch() -> None:
    a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    a.register_hook(zero)
    ((a + b) * weights()).sum().backward()
    assert torch.equal(a.grad, torch.zeros(3))
    assert torch.equal(b.grad, torch.zeros(3))  # this gradient should not have changed


def test_w5_an_edit_in_place_is_forbidden_and_named() -> None:
    a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    handle = th.hook(a, zero)
    with pytest.raises(th.ContractError, match="changed the value in place") as told:
        ((a + b) * weights()).sum().backward()
    assert "return a new tensor" in told.value.remedy
    assert (a.grad, b.grad) == (None, None)
    handle.remove()
    th.hook(a, lambda g: g * 0)
    ((a + b) * weights()).sum().backward()
    assert torch.equal(a.grad, torch.zeros(3))
    assert torch.equal(b.grad, weights())


@pytest.mark.parametrize(
    ("at", "on"),
    [("grad", "weight"), ("grad_accumulated", "weight"), ("grad_output", "."), ("grad_input", "."), ("output", ".")],
)
def test_w5_it_is_forbidden_at_every_point(at: str, on: str) -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    x = torch.ones(1, 2, requires_grad=True)
    with th.attach(model, [th.Hook("edit", on=on, at=at, do=zero)]):
        with pytest.raises(th.ContractError, match="changed the value in place") as told:
            (model(x) * torch.arange(2.0)).sum().backward()
    assert (told.value.hook, told.value.point, told.value.target) == ("edit", at, on)


def test_w5_an_observer_that_edits_in_place_does_not_train_on() -> None:
    """Check that the error is raised. Muting the hook would keep the damage, because the gradient is already zero."""

    @th.action("edits", registry=(registry := th.Registry()))
    def edits(grad: Tensor) -> None:
        grad.zero_()

    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    with th.attach(model, [th.Hook("look", on="weight", at="grad", do=edits)], actions=registry):
        with pytest.raises(th.ContractError, match="changed the value in place"):
            model(torch.ones(1, 2)).sum().backward()
