"""Test that modifiers that change many gradients at once change them as one by one, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tenterhook as th
from tenterhook.torch_internals import foreach

ACTIONS: dict[str, Callable[[], Any]] = {
    "scale": lambda: th.scale(0.3),
    "clip_value": lambda: th.clip_value(0.05),
    "clip_norm": lambda: th.clip_norm(0.1),
    "clip_adaptive": lambda: th.clip_adaptive(0.5),
    "clip_norm over the hook": lambda: th.clip_norm(0.1, over="hook"),
}


def model(*, half: int | None = None, wide: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3), nn.Tanh(), nn.Linear(3, 2))
    if half is not None:
        made[half].bfloat16() if half else made.bfloat16()
    if wide:
        made[2].double()
    return made


def set_gradients(made: nn.Module, seed: int, *, broken: bool = False) -> None:
    generator = torch.Generator().manual_seed(seed)
    for number, one in enumerate(made.parameters()):
        one.grad = torch.randn(one.shape, generator=generator).to(one.dtype)
        if broken and number == 1:
            one.grad[0] = torch.nan
        if number == 5:
            one.grad = None


def gradients(made: nn.Module) -> list[Tensor | None]:
    return [None if one.grad is None else one.grad.clone() for one in made.parameters()]


def trained(do: Any, *, together: bool, monkeypatch: pytest.MonkeyPatch, **given: int) -> tuple[Any, Any]:
    """Return the gradients after each of three steps, and the ledger."""
    made = model(half=given.get("half"), wide="wide" in given)
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
    rig = th.attach(made, th.Hook("h", on="**", at="grad_final", do=do), optimizer=optimizer)
    if not together:
        monkeypatch.setattr(rig._attached_hook("h").definition, "together", None)
    found = []
    for step in range(3):
        set_gradients(made, step, broken="broken" in given)
        optimizer.step()
        found.append(gradients(made))
    counts = {name: (site.fired, site.changed, site.failed, site.skipped) for name, site in rig.ledger["h"].items()}
    rig.detach()
    return found, counts


KINDS: dict[str, dict[str, int]] = {
    "float": {},
    "one in half precision": {"half": 2},
    "half precision": {"half": 0},
    "one in double precision": {"wide": 1},
    "nan": {"broken": 1},
}


@pytest.mark.parametrize("given", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("name", ACTIONS)
def test_the_same_as_one_by_one(name: str, given: dict[str, int], monkeypatch: pytest.MonkeyPatch):
    many, counts = trained(ACTIONS[name](), together=True, monkeypatch=monkeypatch, **given)
    each, wanted = trained(ACTIONS[name](), together=False, monkeypatch=monkeypatch, **given)
    assert counts == wanted
    for mine, theirs in zip(many, each, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert (a is None) == (b is None)
            if a is not None and b is not None:
                torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def test_the_norm_of_all_is_the_one_of_torch():
    mine, theirs = model(), model()
    optimizer = torch.optim.SGD(mine.parameters(), lr=0.1)
    th.attach(mine, th.Hook("h", on="**", at="grad_final", do=th.clip_norm(0.1, over="hook")), optimizer=optimizer)
    for one in (mine, theirs):
        set_gradients(one, 0)
    nn.utils.clip_grad_norm_(theirs.parameters(), 0.1)
    optimizer.step()
    assert all(
        torch.equal(a.grad, b.grad) for a, b in zip(mine.parameters(), theirs.parameters()) if a.grad is not None
    )


def test_gradients_that_share_memory_are_changed_once():
    """Check gradients that are views of one tensor, which an operation in place would change twice."""
    made = nn.Module()
    made.a, made.b = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
    th.attach(made, th.Hook("h", on="**", at="grad_final", do=th.scale(0.5)), optimizer=optimizer)
    shared = torch.ones(3)
    made.a.grad = made.b.grad = shared
    optimizer.step()
    assert made.a.grad.tolist() == made.b.grad.tolist() == [0.5, 0.5, 0.5]
    made.a.grad, made.b.grad = torch.ones(1).expand(3), torch.ones(3)
    optimizer.step()
    assert made.a.grad.tolist() == made.b.grad.tolist() == [0.5, 0.5, 0.5]


def test_a_number_that_an_earlier_hook_emitted_is_not_changed():
    """Check an element of a gradient: it is recorded as it was, although a later hook changes the gradient in place."""
    made = nn.Linear(2, 1, bias=False).double()
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1)

    def first(x: Tensor, ctx: th.Context) -> None:
        ctx.emit("first", x[0, 0])

    hooks = [
        th.Hook("first", on="**", at="grad_final", do=first),
        th.Hook("kept", on="**", at="grad_final", do=th.capture()),
        th.Hook("clip", on="**", at="grad_final", do=th.clip_value(0.5)),
    ]
    rig = th.attach(made, hooks, optimizer=optimizer)
    made.weight.grad = torch.tensor([[4.0, 0.1]], dtype=torch.float64)
    optimizer.step()
    assert [row.value for row in rig.rows("first")] == [4.0]
    assert rig.captured("kept")["weight"][0].tolist() == [[4.0, pytest.approx(0.1)]]
    assert made.weight.grad.tolist() == [[0.5, pytest.approx(0.1)]]


def test_the_size_of_a_change_is_still_recorded():
    seen: list[dict[str, float]] = []
    made = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
    hook = th.Hook("h", on="**", at="grad_final", do=th.scale(0.25))
    with th.attach(made, hook, optimizer=optimizer, sinks=lambda values, step: seen.append(dict(values))):
        for _ in range(3):
            made.weight.grad = torch.ones(1, 2)
            optimizer.step()
    assert [value for one in seen for key, value in one.items() if key.endswith("change")] == [0.75]


def test_without_the_operations_of_torch():
    """Check the loops that replace private operations on lists of tensors."""
    tensors = [torch.tensor([-2.0, 1.0]), torch.tensor([3.0])]
    foreach._multiply(tensors, 2.0)
    foreach._multiply(tensors, torch.tensor(0.5))
    foreach._multiply(tensors, [torch.tensor(1.0), torch.tensor(2.0)])
    assert [one.tolist() for one in tensors] == [[-2.0, 1.0], [6.0]]
    foreach._at_least(tensors, -1.0)
    foreach._at_most(tensors, 5.0)
    assert [one.tolist() for one in tensors] == [[-1.0, 1.0], [5.0]]
