"""With views and in-place operations, gradient hooks see the right gradient, or are refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.multiprocessing.reductions import StorageWeakRef

import tenterhook as th


class Made(nn.Module):
    """Applies a linear layer, and then a function to its output."""

    def __init__(self, make: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.make = make

    def forward(self, x: Tensor) -> Any:
        return self.make(self.linear(x))


CHANGED_AFTERWARDS = {
    "view": (lambda h: h.view(4, 2), lambda o: o.add_(1) * 2),
    "transpose": (lambda h: h.t(), lambda o: o.relu_() * 2),
    "first chunk": (lambda h: (h[:, :2], h[:, 2:]), lambda o: o[0].add_(1) + o[1]),
    "second chunk": (lambda h: (h[:, :2], h[:, 2:]), lambda o: o[0] + o[1].mul_(2)),
    "dict": (lambda h: {"a": h}, lambda o: o["a"].add_(1) * 2),
}


@pytest.mark.parametrize("case", CHANGED_AFTERWARDS)
def test_a_view_that_is_changed_in_place_afterwards_is_refused(case):
    make, use = CHANGED_AFTERWARDS[case]
    model = nn.Sequential(Made(make))
    th.attach(model, [th.Hook("g", on="0", at="grad_output", do=th.scale(0.0))])
    with pytest.raises(th.RefusedError) as caught:
        use(model(torch.ones(2, 4))).sum().backward()
    assert str(caught.value) == (
        "hook 'g' at grad_output on '0': the tensor was changed in place later, so the gradient is not available\n"
        "  remedy: avoid the in-place operation, for example with inplace=False"
    )


@pytest.mark.parametrize("case", CHANGED_AFTERWARDS)
def test_an_observer_of_such_a_view_is_muted_and_the_gradients_are_those_without_it(case):
    make, use = CHANGED_AFTERWARDS[case]
    model = nn.Sequential(Made(make))
    use(model(torch.ones(2, 4))).sum().backward()
    bare = model[0].linear.weight.grad
    rig = th.attach(model, [th.Hook("g", on="0", at="grad_output", do=th.stats())])
    model.zero_grad()
    with pytest.warns(RuntimeWarning, match="muted a hook at one target.*changed in place later"):
        use(model(torch.ones(2, 4))).sum().backward()
    assert torch.equal(model[0].linear.weight.grad, bare)
    site = rig.ledger["g"]["0"]
    assert site.dormant == "muted: the tensor was changed in place later, so the gradient is not available"
    assert (site.fired, site.failed > 0) == (0, True)


def test_an_output_of_its_own_may_be_changed_in_place():
    model = nn.Sequential(Made(lambda h: h * 1))
    rig = th.attach(model, [th.Hook("g", on="0", at="grad_output", do=th.scale(0.0))])
    (model(torch.ones(2, 4)).add_(1) * 2).sum().backward()
    assert rig.ledger["g"].changed == 1
    assert torch.equal(model[0].linear.weight.grad, torch.zeros(4, 4))


def test_a_view_that_is_only_read_is_hooked():
    model = nn.Sequential(Made(lambda h: (h[:, :2], h[:, 2:])))
    rig = th.attach(model, [th.Hook("g", on="0", at="grad_output", do=lambda g, ctx: g * ctx.leaf)])
    a, b = model(torch.ones(2, 4))
    (a + b).sum().backward()
    assert rig.ledger["g"].changed == 2
    assert torch.equal(model[0].linear.bias.grad, torch.tensor([0.0, 0.0, 2.0, 2.0]))


def test_a_tap_that_is_changed_in_place_afterwards_is_refused():
    class Tapped(Made):
        def forward(self, x: Tensor) -> Tensor:
            h = th.tap(self.linear(x)[:, :2], "p", within=self)
            h += 1
            return h

    model = Tapped(nn.Identity())
    th.attach(model, [th.Hook("g", on=":p", at="value_grad", do=th.scale(0.0))])
    with pytest.raises(th.RefusedError) as caught:
        model(torch.ones(2, 4)).sum().backward()
    assert str(caught.value) == (
        "hook 'g' at value_grad on ':p': the tensor was changed in place later, so the gradient is not available\n"
        "  remedy: avoid the in-place operation, for example with inplace=False"
    )


@pytest.mark.parametrize("given", [lambda h: h, lambda h: h[:, :2]], ids=["whole", "view"])
def test_a_module_that_changes_its_own_input_is_refused_at_grad_input(given):
    class Shift(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x += 1
            return x * 2

    class Given(Made):
        def __init__(self) -> None:
            super().__init__(given)
            self.shift = Shift()

        def forward(self, x: Tensor) -> Tensor:
            return self.shift(super().forward(x))

    model = Given()
    th.attach(model, [th.Hook("g", on="shift", at="grad_input", do=th.scale(0.0))])
    with pytest.raises(th.RefusedError) as caught:
        model(torch.ones(2, 4)).sum().backward()
    assert str(caught.value) == (
        "hook 'g' at grad_input on 'shift': the module changes its own input in place, so the gradient is not "
        "available\n  remedy: avoid the in-place operation, for example with inplace=False, or use grad_output of the "
        "previous module"
    )


def test_the_step_ends_though_the_root_output_is_a_view_changed_in_place():
    model = Made(lambda h: h.view(4, 2))
    rig = th.attach(model, [th.Hook("g", on="linear.weight", at="grad", do=th.stats())])
    for steps in (1, 2):
        model(torch.ones(2, 4)).add_(1).sum().backward()
        assert rig.step_count == steps
    assert rig.ledger["g"].fired == 2


@pytest.mark.parametrize("at", [None, "grad_input", "grad_output"])
def test_activations_are_freed_by_the_backward_though_the_loss_is_kept(at):
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3)))
    if at is not None:
        th.attach(model, [th.Hook("a", on=("*", "*.*"), at=at, do=th.stats())])
    stored = []
    for module in model.modules():
        module.register_forward_hook(lambda m, args, out: stored.append(StorageWeakRef(out.untyped_storage())))
    total = torch.zeros(())
    for _ in range(3):
        loss = model(torch.ones(5, 8)).square().sum()
        assert not all(storage.expired() for storage in stored)
        loss.backward()
        total = total + loss
    assert len(stored) == 3 * 10
    assert all(storage.expired() for storage in stored)
    assert total.grad_fn is not None


@th.action("look_at_value", at=["grad_output"], needs_value=True)
def look_at_value(g: Tensor, ctx: th.Context) -> None:
    ctx.emit("value", ctx.value.sum())


def test_a_value_that_was_written_over_is_not_shown():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True))
    rig = th.attach(model, [th.Hook("h", on="0", at="grad_output", do=look_at_value)])
    with pytest.warns(RuntimeWarning) as warned:
        model(torch.ones(1, 2)).sum().backward()
    assert [str(w.message) for w in warned] == [
        "tenterhook muted a hook at one target. hook 'h' at grad_output on '0': the value was changed in place after "
        "the hook was registered, so ctx.value no longer holds the original\n"
        "  remedy: do not change the tensor in place, or use an action that does not need ctx.value"
    ]
    assert rig.rows("h") == [] and rig.ledger["h"].fired == 0


def test_a_value_that_stands_is_shown():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    rig = th.attach(model, [th.Hook("h", on="0", at="grad_output", do=look_at_value)])
    model(torch.ones(1, 2)).sum().backward()
    assert [row.value for row in rig.rows("h")] == [model[0](torch.ones(1, 2)).sum().item()]


@pytest.mark.parametrize("at", ["grad_output", "grad_input"])
@pytest.mark.parametrize("structured", [False, True])
def test_two_rigs_at_one_gradient_fire_in_attach_order(at, structured):
    class Boxed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)
            nn.init.eye_(self.linear.weight)

        def forward(self, x: Tensor) -> Any:
            y = self.linear(x)
            return (y,) if structured else y

    model = nn.Sequential(Boxed())
    th.attach(model, [th.Hook("a", on="0", at=at, do=lambda g: g + 1)])
    th.attach(model, [th.Hook("b", on="0", at=at, do=lambda g: g * 10)])
    x = torch.ones(1, 2, requires_grad=True)
    out = model(x)
    (out[0] if structured else out).sum().backward()
    assert x.grad.tolist() == [[20.0, 20.0]]


def test_an_output_without_a_tensor_is_counted_as_skipped():
    class Box:
        def __init__(self, tensor: Tensor) -> None:
            self.tensor = tensor

    model = nn.Sequential(Made(Box))
    rig = th.attach(model, [th.Hook(at, on="0", at=at, do=th.scale(0.0)) for at in ("output", "grad_output")])
    model(torch.ones(1, 4)).tensor.sum().backward()
    for at in ("output", "grad_output"):
        assert rig.ledger[at].skipped == {"no tensor was found in the output (type: Box)": 1}
        assert rig.ledger[at].fired == 0
    assert torch.equal(model[0].linear.weight.grad, torch.ones(4, 4))


POINTS = {"output": "0", "grad_output": "0", "grad_input": "1", "grad": "0.weight", "grad_accumulated": "0.weight"}


@pytest.mark.parametrize("at", POINTS)
@pytest.mark.parametrize("modifies", [True, False])
def test_inside_torch_func(at, modifies):
    """Check that modifiers fire, that observers are skipped, and that parameter hooks ignore swapped-in tensors."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False))
    for p in model.parameters():
        nn.init.ones_(p)
    rig = th.attach(model, [th.Hook("h", on=POINTS[at], at=at, do=th.scale(2.0) if modifies else th.stats())])
    lent = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(model, parameters, (x,)).sum()

    one = grad(loss)(lent, torch.ones(2))["0.weight"]
    many = vmap(grad(loss), (None, 0))(lent, torch.ones(3, 2))["0.weight"]
    on_module = "." not in POINTS[at]
    times = 2.0 if modifies and on_module else 1.0
    assert torch.equal(one, torch.full((2, 2), times))
    assert torch.equal(many, torch.full((3, 2, 2), times))
    assert rig.ledger["h"].changed == (2 if modifies and on_module else 0)
    why = "the call ran inside torch.func, where tensors cannot be recorded"
    skipped = {} if modifies or not on_module else {why: 2}
    assert rig.ledger["h"].skipped == skipped
