"""A rig on shards."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

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
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rig = th.attach(model, plan, optimizer=optimizer)

for step in range(3):
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(10 * step + rank))
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
assert rig.values("norms")
rig.detach()
result = [p.full_tensor().detach().clone() for p in model.parameters()]
dist.destroy_process_group()
