"""Memory-saving fused backward/optimizer step in a two-process training run (gloo)."""
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD_SIZE = 2
EPOCHS = 3
BATCH = 16


class ToyClassifier(nn.Module):
    def __init__(self, n_features=12, n_classes=4, hidden=24):
        super().__init__()
        self.inp = nn.Linear(n_features, hidden)
        self.mid = nn.Linear(hidden, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.out = nn.Linear(hidden, n_classes)

    def forward(self, x):
        h = F.gelu(self.inp(x))
        h = self.norm(h + F.gelu(self.mid(h)))
        return self.out(h)


def make_data(n=256, n_features=12, n_classes=4):
    gen = torch.Generator().manual_seed(7)
    centers = torch.randn(n_classes, n_features, generator=gen) * 1.5
    y = torch.randint(0, n_classes, (n,), generator=gen)
    x = centers[y] + torch.randn(n, n_features, generator=gen)
    return x, y


def fuse_optimizer(model, lr):
    optimizers = {p: torch.optim.AdamW([p], lr=lr) for p in model.parameters()}

    def step_param(param):
        optimizers[param].step()
        optimizers[param].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step_param)


def weight_spread(model, world_size):
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    gathered = [torch.zeros_like(flat) for _ in range(world_size)]
    dist.all_gather(gathered, flat)
    return (gathered[0] - gathered[1]).abs().max().item()


def worker(rank, world_size, port):
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(0)

    x, y = make_data()
    local_x, local_y = x[rank::world_size], y[rank::world_size]
    model = ToyClassifier()
    fuse_optimizer(model, lr=3e-3)
    model = DDP(model)

    for epoch in range(EPOCHS):
        total = 0.0
        for start in range(0, len(local_x), BATCH):
            xb, yb = local_x[start:start + BATCH], local_y[start:start + BATCH]
            loss = F.cross_entropy(model(xb), yb)
            loss.backward()
            total += loss.item()
        spread = weight_spread(model, world_size)
        mean_loss = torch.tensor(total / (len(local_x) // BATCH))
        dist.all_reduce(mean_loss)
        if rank == 0:
            print(f"epoch {epoch}  loss {mean_loss.item() / world_size:.4f}  "
                  f"largest weight difference between the ranks {spread:.5f}")
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(WORLD_SIZE, free_port()), nprocs=WORLD_SIZE)
