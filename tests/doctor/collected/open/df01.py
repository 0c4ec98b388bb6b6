"""Two-process training of a small regressor with a gradient-norm log per layer."""
import os
import tempfile
from collections import defaultdict

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


def make_shard(rank):
    g = torch.Generator().manual_seed(100 + rank)
    x = torch.randn(64, 6, generator=g) + rank        # the shards come from two sites
    y = x.sum(dim=1, keepdim=True) * 0.3 + rank
    return x, y


def train(rank, world, rendezvous):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DDP(Regressor())
    opt = torch.optim.SGD(model.parameters(), lr=0.05)

    # one curve per parameter: the size of the averaged gradient that the optimizer will use
    curves = defaultdict(list)

    def log_norm(name):
        def hook(grad):
            curves[name].append(round(grad.norm().item(), 4))
        return hook

    for name, p in model.module.named_parameters():
        p.register_hook(log_norm(name))

    x, y = make_shard(rank)
    for step in range(4):
        batch = slice(step * 16, step * 16 + 16)
        loss = nn.functional.mse_loss(model(x[batch]), y[batch])
        opt.zero_grad()
        loss.backward()
        opt.step()

    # DDP keeps the replicas in step, so a log from any rank is as good as another
    logs = [None] * world
    dist.all_gather_object(logs, dict(curves))
    if rank == 0:
        for name, curve in curves.items():
            print(f"{name:12s}", curve)
        print("logs of both ranks agree:", all(log == logs[0] for log in logs))
        w = torch.cat([p.detach().flatten() for p in model.parameters()])
        print("final weight norm:", round(w.norm().item(), 4))
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(train, args=(2, os.path.join(folder, "store")), nprocs=2, start_method="fork")
