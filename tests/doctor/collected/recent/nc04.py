"""Data-parallel training on two workers with the update fused into the backward pass.

Every parameter has its own optimizer and is updated as soon as its gradient is ready,
after which the gradient is released. This keeps the peak memory low.
"""
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD = 2


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))


def shard(rank, n=256):
    g = torch.Generator().manual_seed(5)
    x = torch.randn(n, 16, generator=g)
    y = (x[:, :4].prod(dim=1, keepdim=True) + x[:, 4:5]).tanh()
    return x[rank::WORLD], y[rank::WORLD]


class FusedUpdates:
    def __init__(self, params, lr):
        self.optimizers = {p: torch.optim.SGD([p], lr=lr, momentum=0.9) for p in params}
        for p in self.optimizers:
            p.register_post_accumulate_grad_hook(self.update)

    def update(self, p):
        self.optimizers[p].step()
        self.optimizers[p].zero_grad()


def worker(rank, init_file, queue):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{init_file}", rank=rank, world_size=WORLD)
    model = DDP(make_model())
    updates = FusedUpdates(list(model.parameters()), lr=0.05)
    x, y = shard(rank)
    gen = torch.Generator().manual_seed(100 + rank)
    for step in range(40):
        idx = torch.randint(0, len(x), (32,), generator=gen)
        loss = nn.functional.mse_loss(model(x[idx]), y[idx])
        loss.backward()
    flat = nn.utils.parameters_to_vector(model.module.parameters()).detach()
    gathered = [torch.empty_like(flat) for _ in range(WORLD)]
    dist.all_gather(gathered, flat)
    if rank == 0:
        gap = (gathered[0] - gathered[1]).abs().max().item()
        full = [shard(r) for r in range(WORLD)]
        with torch.no_grad():
            losses = [nn.functional.mse_loss(model.module(a), b).item() for a, b in full]
        queue.put((gap, losses))
    dist.barrier()
    dist.destroy_process_group()


def main():
    ctx = mp.get_context("spawn")
    queue = ctx.SimpleQueue()
    with tempfile.TemporaryDirectory() as tmp:
        mp.spawn(worker, args=(f"{tmp}/rendezvous", queue), nprocs=WORLD)
        gap, losses = queue.get()
    print("loss of worker 0's model on both shards:", " ".join(f"{v:.4f}" for v in losses))
    print(f"largest weight difference between the workers: {gap:.4f}")


if __name__ == "__main__":
    main()
