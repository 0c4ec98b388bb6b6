# TH513
"""A hook that does the update itself, through .data."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()

net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
model = DistributedDataParallel(net)
head = net[2].weight


def descend(grad):
    head.data.sub_(0.1 * grad)


head.register_hook(descend)  # <- TH513
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step in range(3):
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(10 * step + rank))
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
result = [p.detach().clone() for p in model.parameters()]
dist.destroy_process_group()
