import os
import tempfile
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD_SIZE = 2
SHARES = (24, 40)


@dataclass
class BatchShare:
    """How many samples this rank and all ranks together have in the current step."""

    local: int = 0
    everywhere: int = 0


def sample_weighted_average(share, bucket):
    buffer = bucket.buffer().mul_(share.local / share.everywhere)
    future = dist.all_reduce(buffer, async_op=True).get_future()
    return future.then(lambda fut: fut.value()[0])


def build_model():
    torch.manual_seed(17)
    return nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Linear(24, 2))


def make_data():
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(sum(SHARES), 10, generator=generator)
    return x, (x[:, 0] * x[:, 1] > 0).long()


def reference_gradient(x, y):
    model = build_model()
    nn.functional.cross_entropy(model(x), y).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def worker(rank, init_file):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{init_file}", rank=rank, world_size=WORLD_SIZE
    )
    x, y = make_data()
    start = sum(SHARES[:rank])
    x_local, y_local = x[start : start + SHARES[rank]], y[start : start + SHARES[rank]]

    share = BatchShare()
    model = DDP(build_model())
    model.register_comm_hook(share, sample_weighted_average)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    for step in range(15):
        count = torch.tensor(len(x_local))
        dist.all_reduce(count)
        share.local, share.everywhere = len(x_local), int(count)
        loss = nn.functional.cross_entropy(model(x_local), y_local)
        optimizer.zero_grad()
        loss.backward()
        if step == 0 and rank == 0:
            mine = torch.cat([p.grad.flatten() for p in model.parameters()])
            close = torch.allclose(mine, reference_gradient(x, y), atol=1e-6)
            print(f"gradient equals that of the joint batch: {close}", flush=True)
        optimizer.step()

    with torch.no_grad():
        total = nn.functional.cross_entropy(model.module(x), y)
    if rank == 0:
        print(f"loss after 15 steps: {total.item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as folder:
        init_file = os.path.join(folder, "rendezvous")
        mp.start_processes(worker, args=(init_file,), nprocs=WORLD_SIZE, start_method="fork")


if __name__ == "__main__":
    main()
