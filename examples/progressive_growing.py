"""Grow a model while it trains, and clip the gradients of every block from its first step on.

python examples/progressive_growing.py
"""

import torch
from torch import nn

import tenterhook as th


class Grower(nn.Module):
    """A classifier whose blocks are added during training. `loss` calls the blocks, but never the model itself."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(8, 8)])
        self.head = nn.Linear(8, 3)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = torch.tanh(block(x)) + x
        return nn.functional.cross_entropy(self.head(x), y)


torch.manual_seed(0)
model = Grower()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rig = th.attach(model, th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(0.1)), optimizer=optimizer)

x, y = torch.randn(64, 8), torch.randint(3, (64,))
for step in range(30):
    if step in (10, 20):
        model.blocks.append(nn.Linear(8, 8))
        optimizer.add_param_group({"params": model.blocks[-1].parameters()})
    optimizer.zero_grad()
    model.loss(x, y).backward()
    optimizer.step()
    norms = [parameter.grad.norm().item() for parameter in model.parameters()]
    assert max(norms) <= 0.1 + 1e-6, "a gradient was not clipped"

for target, site in rig.ledger["clip"].items():
    print(f"{target:16} clipped in {site.changed} of {site.fired} steps")
assert not th.check(rig)
