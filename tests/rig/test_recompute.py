"""A recomputation in an activation checkpoint repeats the modifications of its forward, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import tenterhook as th
from tests.support.rig.squared import Squared, gradient, x

KINDS = pytest.mark.parametrize("reentrant", [True, False])


def scaled(at: str = "output", **more: Any) -> th.Hook:
    return th.Hook("h", on=":p" if at == "value" else "inner", at=at, do=th.scale(3.0), **more)


@pytest.mark.parametrize("reentrant", [None, True, False])
def test_a_tap_that_is_due_every_second_step(reentrant):
    model = Squared(reentrant)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    fired = []

    def zero(v: Tensor, ctx: th.Context) -> Tensor:
        fired.append(ctx.step)
        return v * 0

    hook = th.Hook("h", on=":p", at="value", do=zero, when=th.When(every=2))
    rig = th.attach(model, [hook], optimizer=optimizer)
    outputs = []
    for _ in range(7):
        out = model(x())
        out.backward()
        outputs.append(out.item())
        optimizer.step()
    assert outputs == [0.0, 9.0, 0.0, 9.0, 0.0, 9.0, 0.0]
    assert fired == ([0, 2, 4, 6] if reentrant is None else [0, 0, 2, 2, 4, 4, 6, 6]), "recomputed with its own step"
    site = rig.ledger["h"][":p"]
    assert (site.due, site.fired, site.changed, site.state) == (4, 4, 4, "idle")


@KINDS
@pytest.mark.parametrize("at", ["output", "value"])
def test_a_removed_modifier_is_off_in_the_next_forward_while_an_older_graph_keeps_it(reentrant, at):
    model = Squared(reentrant)
    rig = th.attach(model, [scaled(at)])
    first = model(x())
    rig.remove("h")
    second = model(x())
    assert (first.item(), second.item()) == (81.0, 9.0)
    assert gradient(model, first) == 9 * 6.0
    assert gradient(model, second) == 6.0


@KINDS
def test_a_revised_modifier_fires_from_the_next_forward(reentrant):
    model = Squared(reentrant)
    rig = th.attach(model, [scaled()])
    first = model(x())
    rig.revise(th.Plan([th.Hook("h", on="inner", at="output", do=th.scale(5.0))]))
    second = model(x())
    assert (first.item(), second.item()) == (81.0, 225.0)
    assert gradient(model, second) == 25 * 6.0
    assert gradient(model, first) == 9 * 6.0


class Twice(Squared):
    """Runs two checkpoints, and calls a function once between them."""

    between: Callable[[], object] | None = None

    def forward(self, x: Tensor) -> Tensor:
        first = super().forward(x)
        if self.between is not None:
            self.between()
            self.between = None
        return first + super().forward(x)


@KINDS
@pytest.mark.parametrize("change", ["remove", "mute", "revise"])
def test_a_change_inside_a_forward_waits_for_the_next_one(reentrant, change):
    model = Twice(reentrant)
    rig = th.attach(model, [scaled()])
    revise = lambda: rig.revise(th.Plan([th.Hook("h", on="inner", at="output", do=th.scale(1.0))]))
    model.between = revise if change == "revise" else lambda: getattr(rig, change)("h")
    out = model(x())
    assert out.item() == 81.0 + 81.0
    assert gradient(model, out) == 2 * 9 * 6.0
    assert model(x()).item() == 9.0 + 9.0


@KINDS
def test_detaching_inside_a_forward_keeps_its_recomputation_consistent(reentrant):
    model = Twice(reentrant)
    rig = th.attach(model, [scaled()])
    model.between = rig.detach
    out = model(x())
    to_its_end, at_once = (81.0 + 81.0, 2 * 9 * 6.0), (81.0 + 9.0, 9 * 6.0 + 6.0)
    try:
        assert (out.item(), gradient(model, out)) in (to_its_end, at_once)
    except th.RefusedError as refused:
        assert "a checkpoint recomputes a forward pass, but the hooks that modified it" in str(refused)
    assert model(x()).item() == 9.0 + 9.0


@KINDS
@pytest.mark.parametrize("at", ["output", "value"])
def test_a_graph_recomputes_after_detach(reentrant, at):
    model = Squared(reentrant)
    rig = th.attach(model, [scaled(at)])
    out = model(x())
    rig.detach()
    assert model(x()).item() == 9.0
    assert gradient(model, out) == 9 * 6.0


def is_clean(model: Squared) -> bool:
    value = torch.ones(1)
    return len(th.inventory(model)) == 0 and th.tap(value, "p", within=model) is value


@KINDS
@pytest.mark.parametrize("at", ["output", "value"])
@pytest.mark.parametrize("backward", [False, True])
def test_after_detach_the_model_is_clean_once_the_graph_is_gone(reentrant, at, backward):
    model = Squared(reentrant)
    rig = th.attach(model, [scaled(at)])
    out = model(x())
    rig.detach()
    if backward:
        out.backward()
    del out
    assert is_clean(model)
    assert gradient(model, model(x())) == 6.0


@KINDS
def test_a_tap_removed_between_forward_and_backward_is_recomputed(reentrant):
    model = Squared(reentrant)
    rig = th.attach(model, [scaled("value"), th.Hook("other", on="inner", at="output", do=lambda t: None)])
    out = model(x())
    assert rig.ledger["h"].fired == 1
    rig.remove("h")
    assert gradient(model, out) == 9 * 6.0
    del out
    assert gradient(model, model(x())) == 6.0


def by_call(y: Tensor, ctx: th.Context) -> Tensor:
    return y * (1 + ctx.call)


@KINDS
def test_a_recomputation_of_one_of_several_calls_refuses_ctx_call(reentrant):
    class Nested(Squared):
        def run(self, x: Tensor) -> Tensor:
            return self.inner(self.inner(x))

    model = Nested(reentrant)
    th.attach(model, [th.Hook("a", on="inner", at="output", do=by_call)])
    out = model(x())
    with pytest.raises(th.ContractError) as caught:
        out.backward()
    assert str(caught.value) == (
        "hook 'a' at output on 'inner': a checkpoint recomputes one of several calls, but the index of that "
        "call is unknown\n"
        "  remedy: do not use ctx.call in an action that modifies a checkpointed module that is called several times"
    )


@KINDS
def test_the_number_of_a_call_that_was_the_only_one_of_its_forward_is_recomputed(reentrant):
    model = Squared(reentrant)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    th.attach(model, [th.Hook("a", on="inner", at="output", do=by_call)], optimizer=optimizer)
    first, second = model(x()), model(x())
    assert (first.item(), second.item()) == (9.0, 36.0)
    assert gradient(model, second) == 4 * 6.0
    assert gradient(model, first) == 6.0


@KINDS
def test_gradient_hooks_in_a_checkpoint_get_the_number_of_their_call_or_an_error(reentrant):
    class Chain(Squared):
        def forward(self, x: Tensor) -> Tensor:
            for _ in range(2):
                x = checkpoint(self.inner, x, use_reentrant=self.reentrant)
            return x

    model = Chain(reentrant)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    calls = []
    hook = th.Hook("g", on="inner", at="grad_output", do=lambda g, ctx: calls.append((ctx.call, g.item())))
    th.attach(model, [hook], optimizer=optimizer)
    try:
        model(x()).backward()
    except th.ContractError as refused:
        assert "the index of that call is unknown" in str(refused)
    else:
        assert calls == [(1, 1.0), (0, 3.0)]


@KINDS
def test_a_recomputation_after_a_step_gets_the_step_of_its_forward(reentrant):
    model = Squared(reentrant)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    hook = th.Hook("h", on="inner", at="output", do=lambda y, ctx: y * (1 + ctx.step))
    rig = th.attach(model, [hook], optimizer=optimizer)
    kept = model(x())
    model(x()).backward()
    optimizer.step()
    assert rig.step_count == 1
    assert gradient(model, kept) == 6.0
    assert gradient(model, model(x())) == 4 * 6.0


@pytest.mark.parametrize("reentrant", [None, True, False])
def test_eval_between_forward_and_backward_does_not_change_what_is_recomputed(reentrant):
    model = Squared(reentrant)
    th.attach(model, [scaled(when=th.When(phase="train"))])
    out = model(x())
    model.eval()
    assert gradient(model, out) == 9 * 6.0
    assert model(x()).item() == 9.0


class Aside(Squared):
    """Keeps a tensor whose graph does not include the output of the root."""

    def forward(self, x: Tensor) -> Tensor:
        self.aside = super().forward(x)
        return self.aside * 2


@KINDS
def test_a_graph_outside_the_root_output_is_recomputed_with_the_hooks_of_its_own_forward(reentrant):
    model = Aside(reentrant)
    rig = th.attach(model, [scaled()])
    model(x())
    aside = model.aside
    rig.mute("h")
    model(x())
    assert gradient(model, aside) == 9 * 6.0


@KINDS
def test_a_graph_outside_the_root_output_is_not_confused_with_an_earlier_backward(reentrant):
    model = Aside(reentrant)
    rig = th.attach(model, [scaled()])
    first = model(x())
    rig.mute("h")
    model(x())
    aside = model.aside
    assert gradient(model, first) == 2 * 9 * 6.0
    try:
        assert gradient(model, aside) == 6.0
    except th.RefusedError as refused:
        assert "a checkpoint recomputes a forward pass, but the hooks that modified it" in str(refused)


@KINDS
def test_a_graph_outside_the_root_output_is_recomputed_while_the_modifiers_are_the_same(reentrant):
    model = Aside(reentrant)
    th.attach(model, [scaled()])
    model(x())
    assert gradient(model, model.aside) == 9 * 6.0
