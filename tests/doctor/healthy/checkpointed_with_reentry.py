"""Reentrant activation checkpointing: the embedding's output requires grad, so the blocks inside get gradients."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

embedding = nn.Embedding(30, 16)
blocks = nn.Sequential(*[nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.SiLU()) for _ in range(4)])
head = nn.Linear(16, 30)
model = nn.ModuleDict({"embedding": embedding, "blocks": blocks, "head": head})

grad_norms, calls = {}, []
for name, param in model.named_parameters():
    param.register_hook(lambda grad, name=name: grad_norms.setdefault(name, []).append(grad.norm().item()))
blocks[1].register_forward_hook(lambda module, args, out: calls.append(torch.is_grad_enabled()))

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(4):
    tokens = torch.randint(30, (4, 9))
    hidden = checkpoint_sequential(blocks, 2, embedding(tokens[:, :-1]), use_reentrant=True)
    loss = F.cross_entropy(head(hidden).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, grad_norms, calls, [p.detach().clone() for p in model.parameters()]]
