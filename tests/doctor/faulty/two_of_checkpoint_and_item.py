# TH404 TH505
"""Count a checkpointed block's calls, and log a gradient norm as a number."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

block, head = nn.Sequential(nn.Linear(4, 4), nn.GELU()), nn.Linear(4, 1)
means, norms = [], []
block[0].register_forward_hook(lambda m, args, out: means.append(out.detach().mean()))  # <- TH404
head.weight.register_hook(lambda grad: norms.append(float(grad.norm().item())))  # <- TH505
for batch in torch.randn(3, 2, 4):
    hidden = checkpoint(block, batch.requires_grad_(), use_reentrant=False)
    head(hidden).sum().backward()
result = [torch.stack(means), torch.tensor(norms)]
