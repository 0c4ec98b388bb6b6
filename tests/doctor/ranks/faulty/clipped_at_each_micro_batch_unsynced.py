# TH401 TH412
"""Accumulate under no_sync, and clamp in a tensor hook at every micro-batch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

model.module[0].weight.register_hook(lambda grad: grad.clamp(-0.01, 0.01))  # <- TH401 TH412
for step in range(3):
    optimizer.zero_grad()
    for micro in range(4):
        x = torch.randn(8, 8, generator=torch.Generator().manual_seed(100 * step + 10 * micro + rank))
        if micro < 3:
            with model.no_sync():
                model(x).square().mean().backward()
        else:
            model(x).square().mean().backward()
    optimizer.step()
result = [p.detach().clone() for p in model.parameters()]
dist.destroy_process_group()
