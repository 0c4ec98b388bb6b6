# TH513
"""One optimizer for each parameter steps as soon as its gradient is there, to save memory."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()

model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}


def step_at_once(p):
    optimizers[p].step()
    optimizers[p].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(step_at_once)  # <- TH513
for step in range(3):
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(10 * step + rank))
    model(x).square().mean().backward()
result = [p.detach().clone() for p in model.parameters()]
dist.destroy_process_group()
