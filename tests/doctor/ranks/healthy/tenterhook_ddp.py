"""A rig on a replica."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tenterhook as th

dist.init_process_group("gloo")
rank = dist.get_rank()

plan = th.Plan(
    [
        th.Hook("norms", on="**", at="grad_final", do=th.stats()),
        th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(0.05, over="hook")),
        th.Hook("acts", on="1", at="output", do=th.stats()),
    ]
)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rig = th.attach(model, plan, optimizer=optimizer)

for step in range(3):
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(10 * step + rank))
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
assert rig.values("norms")
rig.detach()
result = [p.detach().clone() for p in model.parameters()]
dist.destroy_process_group()
