"""Accumulate, and let a post-accumulate hook limit the sum: it acts only in the last micro batch of a step."""

import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 3))
micro_batches = 3
state = {"last": False}


def limit_sum(param):
    if state["last"]:
        param.grad.clamp_(-0.02, 0.02)


for param in model.parameters():
    param.register_post_accumulate_grad_hook(limit_sum)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
losses = []
for step in range(5):
    optimizer.zero_grad()
    for micro in range(micro_batches):
        state["last"] = micro == micro_batches - 1
        x = torch.randn(8, 8)
        loss = F.cross_entropy(model(x), x[:, :3].argmax(dim=1)) / micro_batches
        loss.backward()
        losses.append(loss.item())
    optimizer.step()
result = [losses, [p.detach().clone() for p in model.parameters()]]
