"""Accumulation under no_sync, with hooks that observe."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

seen = []
for p in model.parameters():
    p.register_hook(lambda grad: seen.append(grad.detach().norm()))
for step in range(3):
    optimizer.zero_grad()
    for micro in range(2):
        x = torch.randn(8, 8, generator=torch.Generator().manual_seed(100 * step + 10 * micro + rank))
        model.require_backward_grad_sync = micro == 1
        (model(x).square().mean() / 2).backward()
    optimizer.step()
result = [p.detach().clone() for p in model.parameters()]
dist.destroy_process_group()
