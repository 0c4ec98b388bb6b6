"""Test that `effect` reports the difference between two separate runs, and restores everything."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import tenterhook as th

POINTS: dict[str, Callable[[random.Random, nn.Module], str]] = {
    "grad": lambda r, m: r.choice(["**", *(n for n, _ in m.named_parameters())]),
    "grad_accumulated": lambda r, m: r.choice([n for n, _ in m.named_parameters()]),
    "grad_final": lambda r, m: r.choice(["**", *(n for n, _ in m.named_parameters())]),
    "grad_output": lambda r, m: r.choice([n for n, child in m.named_children() if isinstance(child, nn.Linear)]),
    "grad_input": lambda r, m: r.choice([n for n, child in m.named_children() if isinstance(child, nn.Linear)][1:]),
}
ACTIONS: tuple[Callable[[random.Random], Any], ...] = (
    lambda r: th.scale(r.choice([0.0, 0.5, 3.0, 20.0])),
    lambda r: th.clip_value(r.choice([1e-3, 0.01, 0.1])),
    lambda r: th.clip_norm(r.choice([0.01, 0.1])),
    lambda r: th.reverse(),
    lambda r: th.noise(0.1, seed=r.randrange(9)),
    lambda r: lambda g: g.tanh() * 2,
)
OPTIMIZERS: tuple[Callable[[Any], torch.optim.Optimizer], ...] = (
    lambda p: torch.optim.SGD(p, lr=0.01),
    lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=0.1),
    lambda p: torch.optim.Adam(p, lr=0.01),
    lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    lambda p: torch.optim.RMSprop(p, lr=0.01),
)


class Trial:
    """Train a random model with random modifiers for a few steps."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        torch.manual_seed(seed)
        widths = [chance.randint(2, 6) for _ in range(chance.randint(3, 5))]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), chance.choice([nn.ReLU, nn.Tanh, nn.GELU, nn.Identity])()]
        self.model = nn.Sequential(*layers)
        self.optimizer = chance.choice(OPTIMIZERS)(self.model.parameters())
        hooks = []
        for number in range(chance.randint(1, 3)):
            at = chance.choice(list(POINTS))
            hooks.append(
                th.Hook(f"h{number}", on=POINTS[at](chance, self.model), at=at, do=chance.choice(ACTIONS)(chance))
            )
        self.rig = th.attach(self.model, th.Plan(hooks), optimizer=self.optimizer)
        self.data = torch.randn(8, 4, widths[0])
        for batch in self.data[:3]:
            self.step(self.loss(batch))

    def loss(self, batch: Tensor) -> Tensor:
        return self.model(batch).square().mean()

    def step(self, loss: Tensor) -> dict[str, dict[str, Tensor]]:
        """Run one step, and return the gradients and the update of each parameter."""
        self.optimizer.zero_grad()
        loss.backward()
        grads = {n: p.grad.clone() for n, p in self.model.named_parameters() if p.grad is not None}
        before = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        finals: dict[str, Tensor] = {}
        handle = self.optimizer.register_step_pre_hook(
            lambda *_: finals.update(
                {n: p.grad.clone() for n, p in self.model.named_parameters() if p.grad is not None}
            )
        )
        self.optimizer.step()
        handle.remove()
        update = {n: p.detach() - before[n] for n, p in self.model.named_parameters()}
        return {"grad": grads, "grad_final": finals, "update": update}

    def left(self) -> list[Any]:
        state = [v for kept in self.optimizer.state.values() for v in kept.values()]
        ledger = [(s.fired, s.changed, s.due, s.last) for a in self.rig.ledger.values() for s in a.values()]
        return [
            [p.detach().clone() for p in self.model.parameters()],
            copy.deepcopy(state),
            ledger,
            self.rig.step_count,
        ]


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    return len(a) == len(b) and all(map(equal, a, b)) if isinstance(a, list | tuple) else bool(a == b)


@pytest.mark.parametrize("seed", range(30))
def test_the_difference_is_that_of_two_separate_runs(seed: int):
    trial, hooked, bare = Trial(seed), Trial(seed), Trial(seed)
    bare.rig.detach()
    batch = trial.data[3]
    trial.optimizer.zero_grad()
    effect = th.effect(trial.rig, trial.loss(batch))
    with_hooks, without = hooked.step(hooked.loss(batch)), bare.step(bare.loss(batch))
    changed = 0
    for name, stages in effect.items():
        for stage, seen in stages.items():
            assert seen.with_hooks is not None and seen.difference is not None
            assert torch.equal(seen.with_hooks, with_hooks[stage][name]), (name, stage)
            assert torch.equal(seen.difference, with_hooks[stage][name] - without[stage][name]), (name, stage)
            changed += not seen.same
    assert changed or all(effect.verdict(name) == "unchanged" for name in effect)


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_left_of_it(seed: int):
    trial, other = Trial(seed), Trial(seed)
    losses = [one.loss(one.data[3]) for one in (trial, other)]
    random_numbers = torch.get_rng_state()
    before = trial.left()
    th.effect(trial.rig, losses[0])
    assert equal(trial.left(), before)
    assert torch.equal(torch.get_rng_state(), random_numbers)
    # The backward of the same graph and all later steps give the same bits as without `effect`.
    trial.step(losses[0]), other.step(losses[1])
    for batch in trial.data[4:6]:
        trial.step(trial.loss(batch)), other.step(other.loss(batch))
    assert equal(trial.left(), other.left())


def one_layer(optimizer: str, *hooks: th.Hook, **options: Any) -> tuple[Any, th.Rig, Tensor]:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    made = getattr(torch.optim, optimizer)(model.parameters(), **{"lr": 0.1, **options})
    rig = th.attach(model, th.Plan(hooks), optimizer=made)
    return (model, made), rig, model(torch.randn(4, 3)).square().sum()


SCALE = th.Hook("scale", on="weight", at="grad", do=th.scale(1000.0))
ZERO = th.Hook("zero", on="weight", at="grad", do=th.scale(0.0))
CLIP = th.Hook("clip", on="weight", at="grad_final", do=th.clip_norm(0.01))


@pytest.mark.parametrize(
    ("optimizer", "options", "hooks", "verdict"),
    [
        ("SGD", {}, [SCALE], "reaches the parameter"),
        ("Adam", {}, [SCALE], "undone by Adam: it divides each gradient by a running average of its size"),
        (
            "SGD",
            {"weight_decay": 0.1},
            [ZERO],
            "the gradient is zero, but SGD still moves the parameter because of weight_decay=0.1",
        ),
        ("SGD", {}, [ZERO], "reaches the parameter"),
        ("SGD", {}, [], "unchanged"),
    ],
)
def test_how_far_a_change_comes(optimizer: str, options: dict[str, Any], hooks: list[th.Hook], verdict: str):
    _kept, rig, loss = one_layer(optimizer, *hooks, **options)
    effect = th.effect(rig, loss)
    assert effect.verdict("weight") == verdict
    assert effect.verdict("bias") == "unchanged"
    assert verdict in repr(effect)


def test_without_an_optimizer_it_ends_at_the_gradient():
    model = nn.Linear(2, 1)
    rig = th.attach(model, SCALE)
    effect = th.effect(rig, model(torch.ones(1, 2)).sum())
    assert list(effect["weight"]) == ["grad"]
    assert effect.verdict("weight") == "changed, but no attached optimizer updates the parameter"
    assert model.weight.grad is None


def test_what_has_accumulated_so_far_is_added_to_and_kept():
    model = nn.Linear(2, 1)
    rig = th.attach(model, SCALE)
    model(torch.ones(1, 2)).sum().backward()
    before = model.weight.grad.clone()
    effect = th.effect(rig, model(torch.ones(1, 2)).sum())
    assert torch.equal(effect["weight"]["grad"].with_hooks, before + 1000.0)
    assert torch.equal(effect["weight"]["grad"].without, before + 1.0)
    assert torch.equal(model.weight.grad, before)


class Normed(nn.Module):
    """Run a batch norm inside a checkpoint. The batch norm changes its buffers each time it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc = nn.BatchNorm1d(3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(checkpoint(self.norm, x, use_reentrant=False))


def test_what_is_not_of_the_rig_is_left_alone_too():
    torch.manual_seed(0)
    model, critic, outside = Normed(), nn.Linear(2, 1), nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([*model.parameters(), outside], lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.register_step_post_hook(lambda o, *_: o.param_groups[0].update(stepped=True))
    rig = th.attach(model, th.Hook("scale", on="fc.weight", at="grad", do=th.scale(10.0)), optimizer=optimizer)
    x = torch.randn(4, 3, requires_grad=True)
    critic(torch.randn(1, 2)).sum().backward()
    held = critic.weight.grad
    loss = (critic(model(x)) * outside).sum()
    tensors = [*model.state_dict().values(), outside.detach(), held]
    before = [t.clone() for t in tensors]
    versions = [t._version for t in (*model.parameters(), *model.buffers(), outside, held)]
    attributes = {k: v for k, v in vars(optimizer).items() if isinstance(v, bool | int)}

    effect = th.effect(rig, loss)

    assert effect.verdict("fc.weight") == "reaches the parameter"
    assert all(map(torch.equal, tensors, before))
    assert [t._version for t in (*model.parameters(), *model.buffers(), outside, held)] == versions
    assert x.grad is None
    assert outside.grad is None
    assert critic.weight.grad is held
    assert "stepped" not in optimizer.param_groups[0]
    assert {k: v for k, v in vars(optimizer).items() if isinstance(v, bool | int)} == attributes
    with pytest.warns(UserWarning, match="Detected call of `lr_scheduler.step"):
        scheduler.step()
    loss.backward()


def test_a_loss_without_a_graph_is_refused():
    model = nn.Linear(2, 1)
    rig = th.attach(model, SCALE)
    with pytest.raises(th.RefusedError, match="the loss does not require a gradient"):
        th.effect(rig, torch.tensor(1.0))


def test_a_step_that_needs_a_closure_is_refused_and_nothing_is_left():
    _kept, rig, loss = one_layer("LBFGS", SCALE)
    with pytest.raises(th.RefusedError, match="the step of LBFGS needs a closure"):
        th.effect(rig, loss)
    assert rig.ledger["scale"].fired == 0
    assert loss.requires_grad


def test_it_is_shown_in_notebooks_as_a_table():
    _kept, rig, loss = one_layer("SGD", SCALE)
    assert "<table>" in th.effect(rig, loss)._repr_html_()
