"""Hand-written data parallelism: gradients are averaged while backward runs."""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn

WORLD_SIZE = 2


class DataParallel(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        self.require_sync = True
        for param in module.parameters():
            dist.broadcast(param.data, src=0)
            param.register_post_accumulate_grad_hook(self.average_gradient)

    def average_gradient(self, param):
        if self.require_sync:
            dist.all_reduce(param.grad, op=dist.ReduceOp.SUM)
            param.grad /= dist.get_world_size()

    def forward(self, x):
        return self.module(x)


def build_model():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 4))


def build_data():
    gen = torch.Generator().manual_seed(1)
    centers = torch.randn(4, 10, generator=gen) * 1.2
    y = torch.randint(0, 4, (160,), generator=gen)
    return centers[y] + torch.randn(160, 10, generator=gen), y


def largest_gap(model):
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    copies = [torch.empty_like(flat) for _ in range(WORLD_SIZE)]
    dist.all_gather(copies, flat)
    return (copies[0] - copies[1]).abs().max().item()


def worker(rank, rendezvous):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}",
                            rank=rank, world_size=WORLD_SIZE)
    x, y = build_data()
    x_local, y_local = x[rank::WORLD_SIZE], y[rank::WORLD_SIZE]
    model = DataParallel(build_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    for epoch in range(3):
        for start in range(0, len(x_local), 16):
            xb, yb = x_local[start:start + 16], y_local[start:start + 16]
            loss = nn.functional.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        gap = largest_gap(model)
        if rank == 0:
            with torch.no_grad():
                full = nn.functional.cross_entropy(model(x), y).item()
            print(f"epoch {epoch}: loss {full:.3f}, largest gap between ranks {gap:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(worker, args=(os.path.join(folder, "init"),), nprocs=WORLD_SIZE,
                           start_method="fork")


if __name__ == "__main__":
    main()
