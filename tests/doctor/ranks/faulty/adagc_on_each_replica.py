# TH412
"""Clip relative to the weight's own norm, in a class, in a function that trains."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()


class Clipper:
    def __init__(self, model, factor):
        self.factor = factor
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(self.clip)  # <- TH412

    def clip(self, p):
        limit = self.factor * p.detach().norm().clamp(min=1e-3)
        p.grad.mul_((limit / p.grad.norm()).clamp(max=1.0))


def train():
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
    Clipper(model, 0.01)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        x = torch.randn(16, 8, generator=torch.Generator().manual_seed(10 * step + rank))
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


result = train()
dist.destroy_process_group()
