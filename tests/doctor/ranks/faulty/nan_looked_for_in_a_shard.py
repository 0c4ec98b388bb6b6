# TH512
"""Skip the step on NaN: each rank looks at its own shard, and they disagree."""

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

bad = []


def look(p):
    if torch.isnan(p.grad).sum().item():  # <- TH512
        bad.append(p)


for p in model.parameters():
    p.register_post_accumulate_grad_hook(look)

for step in range(3):
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(10 * step + rank))
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
result = [p.full_tensor().detach().clone() for p in model.parameters()]
dist.destroy_process_group()
