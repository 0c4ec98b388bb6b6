# TH302
"""An action of one's own limits the norm; the limit is far above every gradient."""

import torch
from torch import nn

import tenterhook as th

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


@th.action("limit_norm", at=["grad"], modifies=True)
def limit_norm(grad, ctx, *, limit: float = 1.0):
    norm = grad.norm()
    return grad * (limit / norm) if norm > limit else grad


th.hook(model, limit_norm(limit=1e4), on="weight", at="grad")
for batch in torch.randn(3, 8, 4):
    optimizer.zero_grad()
    model(batch).pow(2).mean().backward()
    optimizer.step()
result = model.weight.detach()
