"""`ratio` measures the size of an update relative to its parameter."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tenterhook as th


@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
def test_the_ratio_of_the_update_norm_to_the_parameter_norm(together: bool):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3)), torch.randn(6, 5)
    with torch.no_grad():
        model[1].bias.zero_()
        model[1].bias.requires_grad_(False)
        model[0].bias.zero_()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rig = th.attach(model, th.Hook("r", on="**", at="update", do=th.ratio()), optimizer=optimizer)
    if not together:
        rig._installer.hooks["r"].batch = None
    old = {n: p.detach().clone() for n, p in model.named_parameters()}
    model(x).square().sum().backward()
    optimizer.step()
    found = rig.values("r")
    assert set(found) == {"0.weight", "0.bias", "1.weight"}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            new = parameter.detach()
            norm, weight = float((new - old[name]).norm()), float(new.norm())
            assert found[name] == pytest.approx({"norm": norm, "weight": weight, "ratio": norm / weight}, rel=1e-6)


def test_the_ratio_of_the_gradient_norm_to_the_parameter_norm_before_the_step():
    torch.manual_seed(0)
    model, x = nn.Linear(5, 4), torch.randn(6, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    rig = th.attach(model, th.Hook("r", on="**", at="grad_final", do=th.ratio()), optimizer=optimizer)
    model(x).square().sum().backward()
    wanted = {n: (float(p.grad.norm()), float(p.detach().norm())) for n, p in model.named_parameters()}
    optimizer.step()
    for name, row in rig.values("r").items():
        norm, weight = wanted[name]
        assert row == pytest.approx({"norm": norm, "weight": weight, "ratio": norm / weight}, rel=1e-6)
    assert set(rig.values("r")) == set(wanted)


def test_it_is_allowed_at_gradients_and_updates_only():
    model = nn.Linear(2, 1)
    with pytest.raises(th.RefusedError, match="use one of the action's points: grad_final, update"):
        th.attach(model, th.Hook("r", on="weight", at="grad", do=th.ratio()))
