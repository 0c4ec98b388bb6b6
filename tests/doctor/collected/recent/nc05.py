"""Two-worker DDP training whose averaged gradients are kept on a coarse grid.

The gradient traffic is reduced with a communication hook: buckets are averaged over the
workers and then stochastically rounded to a fixed step so that they can be stored in int8.
"""
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD, GRID = 2, 0.01


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 8, 5, padding=2)
        self.fc = nn.Linear(8 * 16, 4)

    def forward(self, x):
        h = nn.functional.max_pool1d(torch.relu(self.conv(x)), 2)
        return self.fc(h.flatten(1))


class RoundingState:
    def __init__(self, step, seed):
        self.step = step
        self.gen = torch.Generator().manual_seed(seed)


def rounded_average_hook(state, bucket):
    buf = bucket.buffer().div_(WORLD)
    fut = dist.all_reduce(buf, async_op=True).get_future()

    def round_(f):
        g = f.value()[0]
        scaled = g / state.step
        low = scaled.floor()
        up = torch.rand(g.shape, generator=state.gen) < (scaled - low)
        return g.copy_((low + up) * state.step)

    return fut.then(round_)


def waves(rank, n=400):
    g = torch.Generator().manual_seed(50 + rank)
    y = torch.randint(0, 4, (n,), generator=g)
    t = torch.linspace(0, 6.28, 32)
    x = torch.sin((y[:, None] + 1) * t + torch.rand(n, 1, generator=g) * 6.28)
    return (x + 0.3 * torch.randn(n, 32, generator=g)).unsqueeze(1), y


def worker(rank, init_file, queue):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{init_file}", rank=rank, world_size=WORLD)
    torch.manual_seed(1000 + rank)
    model = DDP(Net())
    model.register_comm_hook(RoundingState(GRID, torch.initial_seed()), rounded_average_hook)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = waves(rank)
    for step in range(50):
        idx = torch.randint(0, len(x), (32,))
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    flat = nn.utils.parameters_to_vector(model.module.parameters()).detach()
    both = [torch.empty_like(flat) for _ in range(WORLD)]
    dist.all_gather(both, flat)
    if rank == 0:
        acc = (model.module(x).argmax(1) == y).float().mean().item()
        queue.put((acc, (both[0] - both[1]).abs().max().item()))
    dist.barrier()
    dist.destroy_process_group()


def main():
    queue = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as tmp:
        mp.spawn(worker, args=(f"{tmp}/init", queue), nprocs=WORLD)
        acc, spread = queue.get()
    print(f"accuracy on worker 0: {acc:.3f}")
    print(f"largest parameter difference between workers: {spread:.6f}")


if __name__ == "__main__":
    main()
