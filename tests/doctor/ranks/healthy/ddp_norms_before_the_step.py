"""The norms of reduced gradients, in a hook of the optimizer."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

norms = []
optimizer.register_step_pre_hook(lambda *_: norms.append(torch.stack([p.grad.norm() for p in model.parameters()])))

for step in range(3):
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(10 * step + rank))
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
result = [norms, *[p.detach().clone() for p in model.parameters()]]
dist.destroy_process_group()
