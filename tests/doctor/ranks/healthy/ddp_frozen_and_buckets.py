"""A frozen layer, and gradients that are views of buckets."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()

net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
net[0].requires_grad_(False)
model = DistributedDataParallel(net, gradient_as_bucket_view=True)
seen = []
for p in net.parameters():
    if p.requires_grad:
        p.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.norm()))
optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad])

for step in range(3):
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(10 * step + rank))
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
result = [p.detach().clone() for p in model.parameters()]
dist.destroy_process_group()
