# TH404 TH505
"""Count a checkpointed block's calls, and log a norm as a number. Fake tensors stand for those of a GPU."""

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils.checkpoint import checkpoint

block, head = nn.Sequential(nn.Linear(4, 4), nn.GELU()), nn.Linear(4, 1)
means, norms = [], []
block[0].register_forward_hook(lambda m, args, out: means.append(out.detach().mean()))  # <- TH404
for batch in torch.randn(3, 2, 4):
    hidden = checkpoint(block, batch.requires_grad_(), use_reentrant=False)
    head(hidden).sum().backward()
with FakeTensorMode(shape_env=ShapeEnv()):
    softmax = nn.Softmax(-1)
    softmax.register_forward_hook(lambda m, args, out: norms.append(out.norm().item()))  # <- TH505
    for batch in torch.randn(3, 2, 4, device="cuda"):
        softmax(batch)
result = [torch.stack(means), len(norms)]
