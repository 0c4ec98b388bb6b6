"""Gradient disagreement between two data-parallel workers.

The tensor hooks deliver each worker's own gradient (before it is averaged), p.grad
delivers the average afterwards; the ratio tells how noisy the shards are.
"""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 16)
        self.fc2 = nn.Linear(16, 1)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


def shard(rank):
    g = torch.Generator().manual_seed(20 + rank)
    x = torch.randn(64, 6, generator=g) + 0.5 * rank
    return x, x.sum(dim=1, keepdim=True).sin()


def train(rank, world, rendezvous):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DDP(Regressor())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    local = {}
    for name, p in model.module.named_parameters():
        p.register_hook(lambda g, name=name: local.__setitem__(name, g.clone()))

    x, y = shard(rank)
    for step in range(3):
        opt.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        spread = torch.stack([(local[n] - p.grad).norm() ** 2 for n, p in model.module.named_parameters()]).sum()
        size = torch.stack([p.grad.norm() ** 2 for p in model.parameters()]).sum()
        dist.all_reduce(spread)
        if rank == 0:
            print(f"step {step}: noise to signal {(spread / world / size).item():.3f}")
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(train, args=(2, os.path.join(folder, "store")), nprocs=2, start_method="fork")
