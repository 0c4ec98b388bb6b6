"""Data-parallel training with the optimizer fused into the backward pass.

Every parameter owns a small Adam; as soon as its gradient is complete the
parameter is updated and the gradient is dropped, so that the full set of
gradients is never in memory at once.
"""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU())
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        return self.head(self.body(x))


def batches(rank, n=8):
    g = torch.Generator().manual_seed(7 + rank)
    for _ in range(n):
        x = torch.randn(16, 10, generator=g)
        yield x, (x[:, :3] + 0.3 * rank).argmax(dim=1)


def run(rank, world, rendezvous):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    torch.manual_seed(1)
    model = DDP(Classifier())

    optims = {p: torch.optim.Adam([p], lr=1e-2) for p in model.parameters()}

    def update(p):
        # the gradient is final here: reduce, step, free
        optims[p].step()
        optims[p].zero_grad()

    losses = []
    for x, y in batches(rank):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        for p in model.parameters():
            update(p)
        losses.append(loss.item())

    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    everyone = [torch.empty_like(flat) for _ in range(world)]
    dist.all_gather(everyone, flat)
    if rank == 0:
        print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
        gap = (everyone[0] - everyone[1]).abs().max().item()
        print(f"largest gap between the replicas: {gap:.4f}")
        print("saving the weights of rank 0,", flat.numel(), "values")
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(run, args=(2, os.path.join(folder, "store")), nprocs=2, start_method="fork")
