# TH513
"""Project a weight back onto a ball after each gradient, in a post-accumulate hook."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.no_grad()
def project(p):
    p.sub_(0.05 * p.grad)
    p.div_(p.norm().clamp(min=1.0))


model.module[0].weight.register_post_accumulate_grad_hook(project)  # <- TH513

for step in range(3):
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(10 * step + rank))
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
result = [p.detach().clone() for p in model.parameters()]
dist.destroy_process_group()
