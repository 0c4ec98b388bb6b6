"""Check hooks on blocks that get another name, or that are new in a pass that does not call the root.

Random programs found these cases. A hook acts in each pass, or its absence is reported.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import tenterhook as th

X = torch.arange(16.0).view(4, 4) / 16
ALL, INNER = slice(None), slice(2, 4)


class Wrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x).tanh()


class Chain(nn.Module):
    """Blocks that run one after the other. `failing` is a block that raises an error.

    `loss` does not call the root. Without its ends, a pass is not noticed before the step in a program that calls the
    root in other steps.
    """

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(blocks)
        self.failing: int | None = None

    def forward(self, x: Tensor, part: slice = ALL) -> Tensor:
        for number, block in enumerate(self.blocks[part]):
            if number == self.failing:
                raise KeyboardInterrupt
            x = block(x)
        return x

    def loss(self, x: Tensor, part: slice = ALL) -> Tensor:
        return self.forward(x, part).square().mean()


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def test_a_hook_acts_on_a_block_that_gets_a_name_that_another_hook_had():
    def build() -> Chain:
        return Chain(Wrapped(), nn.Linear(4, 4), Wrapped())

    model, by_hand = build(), build()
    by_hand.load_state_dict(model.state_dict())
    new = nn.Linear(4, 4)
    hooks = [
        th.Hook("wrapped", on="type:Wrapped", at="output", do=th.scale(0.5)),
        th.Hook("linear", on="type:Linear", at="output", do=th.scale(0.25)),
    ]
    optimizer = sgd(model)
    rig = th.attach(model, hooks, optimizer=optimizer)
    model(X)
    optimizer.step()
    model.blocks.insert(0, new)
    model(X).sum().backward()

    by_hand.blocks.insert(0, nn.Linear(4, 4))
    by_hand.blocks[0].load_state_dict(new.state_dict())
    for module in by_hand.modules():
        if isinstance(module, Wrapped | nn.Linear):
            factor = 0.5 if isinstance(module, Wrapped) else 0.25
            module.register_forward_hook(lambda module, args, output, factor=factor: output * factor)
    by_hand(X).sum().backward()
    for one, other in zip(model.parameters(), by_hand.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)
    assert rig.ledger["linear"]["blocks.2"].fired == 1


def linears(count: int) -> list[nn.Module]:
    return [nn.Linear(4, 4) for _ in range(count)]


def test_a_block_gets_its_name_back():
    model = Chain(*linears(2), Wrapped(), *linears(2))
    optimizer = sgd(model)
    rig = th.attach(model, th.Hook("h", on="blocks.2.**", at="grad", do=th.scale(0.5)), optimizer=optimizer)
    for change in (None, lambda: model.blocks.insert(2, nn.Linear(4, 4))):
        if change:
            change()
        optimizer.zero_grad()
        model(X).sum().backward()
        optimizer.step()
    del model.blocks[2]
    model.loss(X, INNER).backward()
    with pytest.warns(RuntimeWarning, match="TH703"):
        optimizer.step()
    assert "blocks.2.fc.weight" in {one.target for one in rig.imbalances}


@pytest.mark.parametrize("change", ["insert", "delete"])
@pytest.mark.parametrize("at", ["input", "output", "grad_input", "grad_output", "grad", "grad_accumulated"])
def test_a_first_pass_without_the_root_gets_its_hooks_although_the_blocks_have_moved(change: str, at: str):
    model, by_hand = Chain(*linears(4)), Chain(*linears(4))
    by_hand.load_state_dict(model.state_dict())
    new, on = nn.Linear(4, 4), "blocks.1" if at in ("input", "output", "grad_input", "grad_output") else "blocks.1.*"
    optimizer = sgd(model)
    rig = th.attach(model, th.Hook("h", on=on, at=at, do=th.scale(0.5)), optimizer=optimizer)
    model(X).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    by_hand.load_state_dict(model.state_dict())
    for one in (model, by_hand):
        if change == "insert":
            one.blocks.insert(1, nn.Linear(4, 4))
            one.blocks[1].load_state_dict(new.state_dict())
        else:
            del one.blocks[0]
    hooked = by_hand.blocks[1]
    if at == "input":
        hooked.register_forward_pre_hook(lambda module, args: (args[0] * 0.5,))
    elif at == "output":
        hooked.register_forward_hook(lambda module, args, output: output * 0.5)
    elif at == "grad_input":
        hooked.register_full_backward_hook(lambda module, grad_input, grad_output: (grad_input[0] * 0.5,))
    elif at == "grad_output":
        hooked.register_full_backward_pre_hook(lambda module, grad_output: (grad_output[0] * 0.5,))
    else:
        for parameter in hooked.parameters():
            parameter.register_hook(lambda grad: grad * 0.5)
    for one in (model, by_hand):
        one.loss(X).backward()
    for ours, theirs in zip(model.parameters(), by_hand.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)
    assert not rig.imbalances


def test_a_block_that_came_and_went_within_a_step_is_reported():
    """Run a pass with the block, in which no gradient arrives at the block."""
    model = Chain(*linears(3))
    optimizer = sgd(model)
    th.attach(model, th.Hook("h", on="blocks.*", at="input", do=th.scale(0.5)), optimizer=optimizer)
    model.blocks.insert(0, nn.Linear(4, 4))
    with pytest.warns(RuntimeWarning, match="TH703"):
        model.loss(X).backward(inputs=[model.blocks[2].weight])
    del model.blocks[0]


def test_the_gradient_of_another_block_is_not_recorded_under_a_new_name():
    model = Chain(*linears(3))
    optimizer = sgd(model)
    rig = th.attach(model, [
        th.Hook("seen", on="blocks.0", at="grad_output", do=th.capture()),
        th.Hook("other", on="**.weight", at="grad_final", do=th.scale(0.5)),
    ], optimizer=optimizer)  # fmt: skip
    model.blocks.insert(0, nn.Linear(4, 4))
    with pytest.warns(RuntimeWarning, match="TH703"):
        loss = model.loss(X)
    rig.mute("other")
    loss.backward()
    optimizer.step()
    with pytest.warns(RuntimeWarning, match="its targets did not run"):
        assert rig.captured("seen") == {}
    assert {(one.hook, one.target) for one in rig.imbalances} == {("seen", "blocks.0")}


def test_a_pass_that_fails_and_then_a_step_report_a_new_block():
    model = Chain(*linears(2))
    optimizer = sgd(model)
    rig = th.attach(model, th.Hook("h", on="blocks.0", at="input", do=th.stats()), optimizer=optimizer)
    model.loss(X).backward()
    optimizer.step()
    model.blocks.insert(0, nn.Linear(4, 4))
    model.failing = 1
    with pytest.raises(KeyboardInterrupt):
        model.loss(X)
    with pytest.warns(RuntimeWarning, match="TH703"):
        optimizer.step()
    assert {one.target for one in rig.imbalances} == {"blocks.0"}


def test_a_recomputed_block_does_not_get_the_hook_of_the_block_that_had_its_name():
    class Checkpointed(Chain):
        def forward(self, x: Tensor) -> Tensor:
            first, *others = self.blocks
            x = checkpoint(first, x, use_reentrant=False)
            for block in others:
                x = block(x)
            return x

    def build() -> Checkpointed:
        return Checkpointed(Wrapped(), nn.Linear(4, 4), Wrapped())

    def scale_input(factor: float) -> Callable[..., Any]:
        return lambda module, args: (args[0] * factor,)

    model, by_hand = build(), build()
    by_hand.load_state_dict(model.state_dict())
    hooks = [
        th.Hook("all", on="blocks.*", at="input", do=th.scale(0.5)),
        th.Hook("wrapped", on="type:Wrapped", at="input", do=th.clip_value(0.1)),
    ]
    optimizer = sgd(model)
    th.attach(model, hooks, optimizer=optimizer)
    model(X).sum().backward()
    optimizer.zero_grad()
    for one in (model, by_hand):
        del one.blocks[0]
    for block in by_hand.blocks:
        block.register_forward_pre_hook(scale_input(0.5))
    by_hand.blocks[1].register_forward_pre_hook(lambda module, args: (args[0].clamp(-0.1, 0.1),))
    for one in (model, by_hand):
        one(X).sum().backward()
    for ours, theirs in zip(model.parameters(), by_hand.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)


@pytest.mark.parametrize("watched", [False, True])
def test_a_pass_that_fails_before_a_hooked_block_may_have_missed_a_new_one(watched: bool):
    model = Chain(nn.Linear(4, 4), nn.Linear(4, 4))
    optimizer = sgd(model)
    rig = th.attach(model, th.Hook("h", on="blocks.0", at="input", do=th.stats()), optimizer=optimizer)
    if watched:  # after a step without a call of the root, the modules below it are watched
        model.loss(X).backward()
        optimizer.step()
    model.blocks.insert(0, nn.Linear(4, 4))
    model.failing = 1
    with pytest.raises(KeyboardInterrupt):
        model.loss(X)
    model.failing = None
    with pytest.warns(RuntimeWarning, match="TH703"):
        model(X).sum().backward()
        optimizer.step()
    assert {one.target for one in rig.imbalances} == {"blocks.0"}


@pytest.mark.parametrize("frozen", [True, False])
def test_a_backward_pass_through_a_new_block_may_have_missed_it_although_the_block_has_no_gradients(frozen: bool):
    model = Chain(*linears(4))
    kept = model.blocks[2].bias
    optimizer = torch.optim.SGD([one for one in model.parameters() if one is not kept], lr=0.1)
    rig = th.attach(model, th.Hook("h", on="blocks.*", at="grad_output", do=th.scale(0.5)), optimizer=optimizer)
    model(X).sum().backward()
    optimizer.step()
    new = nn.Linear(4, 4)
    model.blocks.insert(2, new.requires_grad_(not frozen))  # PyTorch reports what is appended, but not this
    model.loss(X, INNER).backward()
    new.zero_grad()  # zero_grad of the optimizer does not clear the gradient of the other block's bias
    with pytest.warns(RuntimeWarning, match="TH703"):
        model(X).sum().backward()
        optimizer.step()
    assert "blocks.2" in {one.target for one in rig.imbalances}


def test_gradients_that_a_hook_replaces_are_not_taken_for_cleared():
    model = Chain(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    optimizer = torch.optim.SGD([block.weight for block in reversed(model.blocks)], lr=0.1)
    rig = th.attach(model, [
        th.Hook("halved", on="**.weight", at="grad_accumulated", do=th.scale(0.5)),
        th.Hook("seen", on="blocks.1", at="grad_input", do=th.stats()),
    ], optimizer=optimizer)  # fmt: skip
    for _ in range(3):
        model(X.clone().requires_grad_()).sum().backward()
    optimizer.step()
    assert rig.ledger["seen"]["blocks.1"].fired == 3
    assert not rig.ledger["seen"].skipped


@pytest.mark.parametrize("at", ["output", "grad_output"])
def test_the_passes_of_another_model_are_not_taken_for_passes_that_a_hook_missed(at: str):
    model, other = Chain(nn.Linear(4, 4)), Chain(nn.Linear(4, 4))
    optimizer = torch.optim.SGD([model.blocks[0].weight], lr=0.1)  # so the gradient of the bias is kept
    rig = th.attach(model, th.Hook("h", on="blocks.*", at=at, do=th.stats()), optimizer=optimizer)
    for _ in range(2):
        optimizer.zero_grad()
        model(X).sum().backward()
        optimizer.step()
    model.blocks.insert(1, nn.Linear(4, 4))
    other(X).sum().backward()
    model(X).sum().backward()
    optimizer.step()
    assert rig.ledger["h"]["blocks.1"].fired == 1
    assert not rig.imbalances


@pytest.mark.parametrize("do", [th.stats(), th.scale(0.5), th.clip_norm(1.0), th.digest()], ids=lambda do: do.name)
@pytest.mark.parametrize("through_root", [False, True])
def test_a_block_that_loses_its_name_between_the_passes_is_reported(do: th.Action, through_root: bool):
    """Follow the change in `mute`, so that the graph has hooks of names that are gone."""
    model = Chain(*linears(5))
    model.tail = nn.Linear(4, 4)
    optimizer = sgd(model)
    hooks = [
        th.Hook("h", on="blocks.*", at="grad_output", do=do),
        th.Hook("other", on="blocks.*", at="grad_output", do=th.stats()),
    ]
    rig = th.attach(model, hooks, optimizer=optimizer)
    model(X).square().mean().backward()
    optimizer.step()
    if not through_root:
        del model.blocks[1]
        loss = model.loss(X, slice(2, None))
    else:
        loss = model(X).square().mean()
        del model.blocks[1]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rig.mute("other")
        loss.backward()
        optimizer.step()
    assert any(
        "a backward pass reached a part of the model that has lost this name" in str(one.message) for one in caught
    )
    assert "blocks.4" in {target for one in rig.imbalances if one.hook == "h" for target in one.targets}


def test_a_block_that_gets_its_name_back_is_audited_under_it():
    """Step an optimizer that was not given to attach, before and after its parameters get the name of a hook."""
    model = Chain(*linears(2))
    first, last = sgd(model.blocks[0]), sgd(model.blocks[1])
    rig = th.attach(model, th.Hook("h", on="blocks.0.**", at="grad_final", do=th.scale(0.0)), optimizer=[first, last])
    other = sgd(model.blocks[0])
    model.blocks.insert(0, Wrapped())
    for step in range(4):
        if step == 3:
            del model.blocks[0]
        model(X).sum().backward()
        if step == 3:
            with pytest.warns(RuntimeWarning, match="TH701"):
                other.step()
        else:
            other.step()
        last.step()
    assert {one.target for one in rig.imbalances} == {"blocks.0.weight"}


@pytest.mark.parametrize("through_root", [True, False])
def test_a_pass_after_an_interrupted_one_is_seen_or_reported(through_root: bool):
    """Compute the gradients twice before a step, as SAM does, and clear those of the first pass."""
    model = Chain(*linears(3))
    optimizer = sgd(model)
    rig = th.attach(model, th.Hook("h", on="**.weight", at="grad", do=th.scale(0.5)), optimizer=optimizer)
    model.failing = 1
    with pytest.raises(KeyboardInterrupt):
        model(X) if through_root else model.loss(X)
    model.failing = None
    new = nn.Linear(4, 4)
    model.blocks.insert(3, new)
    by_hand = copy.deepcopy(model)
    by_hand.loss(X).backward()
    seen = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            model.zero_grad()
            model.loss(X).backward()
            seen.append(new.weight.grad)
        optimizer.step()
    exact = all(torch.equal(one, by_hand.blocks[3].weight.grad * 0.5) for one in seen)
    assert exact or any("tenterhook TH70" in str(one.message) for one in caught)
    assert bool(rig.imbalances) is not exact
