# TH535
"""Add a sparsity loss on hidden activations, which come from the first run of a reentrant checkpoint."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 6)
        self.block = nn.Sequential(nn.Linear(6, 6), nn.ReLU())
        self.head = nn.Linear(6, 1)

    def forward(self, x):
        return self.head(checkpoint(self.block, self.embed(x), use_reentrant=True))


torch.manual_seed(0)
model = Model()
hidden = {}


def keep(module, args, output):
    hidden.setdefault("block", output)


model.block[1].register_forward_hook(keep)  # <- TH535
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.randn(3, 5, 4):
    optimizer.zero_grad()
    hidden.clear()
    out = model(batch)
    (out.pow(2).mean() + hidden["block"].abs().mean()).backward()
    optimizer.step()
result = [p.detach() for p in model.parameters()]
