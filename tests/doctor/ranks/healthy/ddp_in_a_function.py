"""Everything is made in a function, and gone at its end."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()


def train():
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    norms = []
    handle = model.module[0].weight.register_hook(lambda grad: norms.append(grad.norm()))
    for step in range(3):
        x = torch.randn(16, 8, generator=torch.Generator().manual_seed(10 * step + rank))
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    handle.remove()
    return [*norms, *(p.detach().clone() for p in model.parameters())]


result = train()
dist.destroy_process_group()
