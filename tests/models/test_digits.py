"""Trains a real network on handwritten digits, with and without hooks."""

from __future__ import annotations

import torch
from torch import nn

import tenterhook as th
from tests.support.needs import needs


def trained(*, hooks: th.Plan | None) -> tuple[float, th.Rig | None]:
    data = needs("sklearn.datasets").load_digits()
    x, y = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(inplace=True), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    rig = th.attach(model, hooks, optimizer=optimizer) if hooks is not None else None
    for epoch in range(5):
        for rows in torch.randperm(1400, generator=torch.Generator().manual_seed(epoch)).split(100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        accuracy = (model(x[1400:]).argmax(1) == y[1400:]).float().mean().item()
    return accuracy, rig


def test_it_learns_the_same_with_observers_and_still_learns_with_a_clip():
    bare, _ = trained(hooks=None)
    watched, rig = trained(hooks=th.Plan([
        th.Hook("grads", on="**", at="grad_final", do=th.stats()),
        th.Hook("outputs", on="*", at="output", do=th.stats(), when=th.When(every=10)),
        th.Hook("flow", on="*", at="grad_output", do=th.stats(), when=th.When(every=10)),
    ]))  # fmt: skip
    assert bare == watched > 0.85
    assert rig.step_count == 70
    assert {h: a.due for h, a in rig.ledger.items()} == {"grads": 70, "outputs": 7, "flow": 7}
    assert rig.ledger["outputs"].skipped == {"the root is in eval mode (When(phase='any') fires in both)": 3}

    clipped, rig = trained(
        hooks=th.Plan([th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(0.5, over="hook"))])
    )
    assert clipped > 0.85
    assert rig.ledger["clip"].changed == 4 * 70
