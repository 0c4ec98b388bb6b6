"""The patterns of a plan cannot keep a program busy for long."""

from __future__ import annotations

import pytest
from torch import nn

import tenterhook as th
from tenterhook.resolve import resolution


def model(blocks: int) -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)) for _ in range(blocks)))


def slow_patterns(count: int) -> list[str]:
    """Return patterns that examine every character of a name, and share no work."""
    return [f"**.*{'*'.join(str(number))}*" for number in range(count)]


@pytest.mark.parametrize("split", [False, True])
def test_too_many_slow_patterns_are_refused(monkeypatch: pytest.MonkeyPatch, split: bool):
    monkeypatch.setattr(resolution, "MIN_WORK", 1000)
    monkeypatch.setattr(resolution, "MAX_READINGS", 2)
    ons = [[one, "**"] for one in slow_patterns(40)] if split else [[*slow_patterns(40), "**"]]
    hooks = [th.Hook(f"h{n}", on=on, at="grad", do=th.clip_value(1.0)) for n, on in enumerate(ons)]
    with pytest.raises(th.PlanError, match=r"the patterns of the plan examine more than .* characters"):
        th.attach(model(100), hooks)


def test_a_usual_plan_needs_a_small_part_of_the_limit():
    hooks = [
        th.Hook(f"h{n}", on=on, at="grad", do=th.clip_value(1.0))
        for n, on in enumerate(["**", "**.weight", "*.0.*", "1*.*.bias", "9.**", "type:Linear"])
        if not on.startswith("type:")
    ]
    big = model(300)
    rig = th.attach(big, hooks)
    characters = sum(len(name) for name, _ in big.named_parameters())
    assert sum(hook.selector.work for hook in hooks) < 4 * characters
    rig.detach()
