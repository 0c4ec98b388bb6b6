# TH547
"""Keep the largest activation in a variable of each rank."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
layer = nn.Linear(8, 4)
kept = {"largest": 0.0}


def observe(module, args, output):
    kept["largest"] = max(kept["largest"], float(output.detach().max()))


layer.register_forward_hook(observe)  # <- TH547
model = DistributedDataParallel(nn.Sequential(layer, nn.ReLU()))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(10 * step + rank))
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
result = [p.detach().clone() for p in model.parameters()]
dist.destroy_process_group()
