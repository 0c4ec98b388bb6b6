"""Sync is off for all but the last micro-batch."""

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

norms = []
for p in model.parameters():
    p.register_post_accumulate_grad_hook(lambda p: norms.append(p.grad.full_tensor().norm()))
for step in range(3):
    for micro in range(2):
        model.set_requires_gradient_sync(micro == 1)
        x = torch.randn(16, 8, generator=torch.Generator().manual_seed(10 * step + rank))
        model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
assert len(norms) == 12
result = [p.full_tensor().detach().clone() for p in model.parameters()]
dist.destroy_process_group()
