"""Two DDP workers exchange only large gradient entries, with error feedback.

Each worker keeps its own residual of what it has not sent yet; what is sent is averaged.
"""
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD, KEEP = 2, 0.2


class TopKState:
    def __init__(self, keep):
        self.keep = keep
        self.residual = {}


def top_k_average(state, bucket):
    buf = bucket.buffer()
    for p, g in zip(bucket.parameters(), bucket.gradients()):
        if p in state.residual:
            g.add_(state.residual[p])
    k = max(1, int(state.keep * buf.numel()))
    limit = buf.abs().topk(k).values[-1]
    sent = torch.where(buf.abs() >= limit, buf, torch.zeros_like(buf))
    for p, g in zip(bucket.parameters(), bucket.gradients()):
        state.residual[p] = torch.where(g.abs() >= limit, torch.zeros_like(g), g)
    fut = dist.all_reduce(sent, async_op=True).get_future()
    return fut.then(lambda f: buf.copy_(f.value()[0] / WORLD))


def data(rank, n=300):
    g = torch.Generator().manual_seed(70 + rank)
    x = torch.randn(n, 12, generator=g)
    return x, (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 0.8).long()


def worker(rank, init_file, queue):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{init_file}", rank=rank, world_size=WORLD)
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 3)))
    state = TopKState(KEEP)
    model.register_comm_hook(state, top_k_average)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.8)
    x, y = data(rank)
    first = None
    for step in range(60):
        idx = torch.randint(0, len(x), (48,))
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        first = loss.item() if first is None else first
        opt.zero_grad()
        loss.backward()
        opt.step()
    flat = nn.utils.parameters_to_vector(model.module.parameters()).detach()
    both = [torch.empty_like(flat) for _ in range(WORLD)]
    dist.all_gather(both, flat)
    if rank == 0:
        queue.put((first, loss.item(), (both[0] - both[1]).abs().max().item()))
    dist.barrier()
    dist.destroy_process_group()


def main():
    queue = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as tmp:
        mp.spawn(worker, args=(f"{tmp}/init", queue), nprocs=WORLD)
        first, last, gap = queue.get()
    print(f"loss {first:.3f} -> {last:.3f}")
    print(f"largest difference between the workers: {gap:.6f}")
    assert gap == 0.0 and last < first


if __name__ == "__main__":
    main()
