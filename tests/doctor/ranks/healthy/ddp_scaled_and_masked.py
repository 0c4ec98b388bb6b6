"""A factor and a mask, the same on every rank, may come before the mean."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

mask = (torch.arange(16) < 8).float()[:, None]
norms = []


def halve(p):
    norms.append(p.grad.norm())
    p.grad.mul_(0.5)


model.module[0].weight.register_hook(lambda grad: grad * mask)
model.module[2].weight.register_post_accumulate_grad_hook(halve)

for step in range(3):
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(10 * step + rank))
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
result = [p.detach().clone() for p in model.parameters()]
dist.destroy_process_group()
