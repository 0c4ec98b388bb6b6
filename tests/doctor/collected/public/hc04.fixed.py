"""Two-process data-parallel training (gloo) with half-precision gradient compression."""
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD_SIZE = 2
LOCAL_BATCH = 16
STEPS = 12


def build_model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(10, 32), nn.Tanh(),
        nn.Linear(32, 32), nn.Tanh(),
        nn.Linear(32, 1),
    )


def make_dataset():
    gen = torch.Generator().manual_seed(42)
    x = torch.randn(WORLD_SIZE * LOCAL_BATCH, 10, generator=gen)
    y = torch.sin(x[:, :1]) + 0.5 * x[:, 1:2] * x[:, 2:3]
    return x, y


def compress_half(group, bucket):
    """Send the bucket as float16 and write the result back in float32."""
    group = group if group is not None else dist.group.WORLD
    buffer = bucket.buffer()
    compressed = buffer.to(torch.float16).div_(group.size())
    future = dist.all_reduce(compressed, group=group, async_op=True).get_future()

    def decompress(fut):
        buffer.copy_(fut.value()[0])
        return buffer

    return future.then(decompress)


def grad_norm(parameters):
    return torch.stack([p.grad.norm() for p in parameters]).norm().item()


def whole_batch_norm(x, y):
    model = build_model()
    F.mse_loss(model(x), y).backward()
    return grad_norm(model.parameters())


def worker(rank, world_size, port):
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)

    x, y = make_dataset()
    local_x = x[rank::world_size]
    local_y = y[rank::world_size]

    model = DDP(build_model())
    model.register_comm_hook(state=None, hook=compress_half)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    for step in range(STEPS):
        optimizer.zero_grad()
        loss = F.mse_loss(model(local_x), local_y)
        loss.backward()
        if step == 0 and rank == 0:
            reference = whole_batch_norm(x, y)
            norm = grad_norm(model.parameters())
            print(f"gradient norm at step 0: {norm:.3f}, one process on the whole batch: {reference:.3f}, "
                  f"quotient {norm / reference:.2f}")
        optimizer.step()

    mean_loss = loss.detach().clone()
    dist.all_reduce(mean_loss)
    if rank == 0:
        print(f"loss after {STEPS} steps: {mean_loss.item() / world_size:.4f}")
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(WORLD_SIZE, free_port()), nprocs=WORLD_SIZE)
