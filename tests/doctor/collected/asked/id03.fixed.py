import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD_SIZE = 2


def build_model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 3))


def make_data():
    generator = torch.Generator().manual_seed(11)
    x = torch.randn(64, 12, generator=generator)
    y = x[:, :3].argmax(dim=1)
    return x, y


def compressed_allreduce(group, bucket):
    buffer = bucket.buffer()
    half = buffer.to(torch.float16).div_(WORLD_SIZE)
    future = dist.all_reduce(half, group=group, async_op=True).get_future()

    def decompress(fut):
        return buffer.copy_(fut.value()[0])

    return future.then(decompress)


def grad_norm(model):
    return torch.stack([p.grad.norm() for p in model.parameters()]).norm().item()


def full_batch_norm(x, y):
    model = build_model()
    nn.functional.cross_entropy(model(x), y).backward()
    return grad_norm(model)


def worker(rank, init_file):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{init_file}", rank=rank, world_size=WORLD_SIZE
    )
    x, y = make_data()
    shard = slice(rank * 32, (rank + 1) * 32)
    x_local, y_local = x[shard], y[shard]

    model = DDP(build_model())
    model.register_comm_hook(dist.group.WORLD, compressed_allreduce)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)

    for step in range(10):
        loss = nn.functional.cross_entropy(model(x_local), y_local)
        optimizer.zero_grad()
        loss.backward()
        if step == 0 and rank == 0:
            ratio = grad_norm(model) / full_batch_norm(x, y)
            print(f"gradient norm relative to one big batch: {ratio:.2f}", flush=True)
        optimizer.step()

    with torch.no_grad():
        total = nn.functional.cross_entropy(model.module(x), y)
    if rank == 0:
        print(f"loss after 10 steps: {total.item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as folder:
        init_file = os.path.join(folder, "rendezvous")
        mp.start_processes(worker, args=(init_file,), nprocs=WORLD_SIZE, start_method="fork")


if __name__ == "__main__":
    main()
