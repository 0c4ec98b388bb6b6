# TH514
"""The backbone is unfrozen after a warm-up; DDP was made while it was frozen."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()

net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
net[0].requires_grad_(False)
model = DistributedDataParallel(net)  # <- TH514
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
norms = []
for step in range(4):
    if step == 2:
        net[0].requires_grad_(True)
        net[0].weight.register_hook(lambda grad: norms.append(grad.norm()))
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(10 * step + rank))
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
result = [p.detach().clone() for p in model.parameters()]
dist.destroy_process_group()
