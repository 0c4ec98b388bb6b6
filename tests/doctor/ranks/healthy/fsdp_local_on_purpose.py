"""This rank's part, said to be so, and added up by hand."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

totals = []


def total(optimizer, args, kwargs):
    squares = torch.stack([p.grad.to_local().pow(2).sum() for p in model.parameters()]).sum()
    dist.all_reduce(squares)
    totals.append(squares.sqrt().item())


optimizer.register_step_pre_hook(total)

for step in range(3):
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(10 * step + rank))
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
result = [p.full_tensor().detach().clone() for p in model.parameters()]
dist.destroy_process_group()
