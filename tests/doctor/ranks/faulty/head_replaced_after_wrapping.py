# TH514
"""A new head for the new task, after DDP was made; the optimizer knows it, DDP does not."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()

net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
model = DistributedDataParallel(net)  # <- TH514
net[2] = nn.Linear(16, 2)
norms = []
net[2].weight.register_hook(lambda grad: norms.append(grad.norm()))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(16, 8, generator=torch.Generator().manual_seed(rank))
model(x).square().mean().backward()
optimizer.step()
result = [p.detach().clone() for p in model.parameters()]
dist.destroy_process_group()
