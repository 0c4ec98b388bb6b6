"""Local SGD: the communication hook of DDP is a no-op on purpose, weights are averaged now and then."""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def keep_local(state, bucket):
    """No traffic at all: every rank goes on with its own gradient."""
    state["buckets"] += 1
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def average_weights(model, world):
    with torch.no_grad():
        for p in model.parameters():
            dist.all_reduce(p)
            p.div_(world)


def gap(model, world):
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    everyone = [torch.empty_like(flat) for _ in range(world)]
    dist.all_gather(everyone, flat)
    return (everyone[0] - everyone[1]).abs().max().item()


def train(rank, world, rendezvous):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)))
    state = {"buckets": 0}
    model.register_comm_hook(state, keep_local)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)

    g = torch.Generator().manual_seed(rank)
    x = torch.randn(48, 4, generator=g)
    y = x.prod(dim=1, keepdim=True) + rank
    for step in range(1, 9):
        opt.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        opt.step()
        if step % 4 == 0:
            before = gap(model, world)
            average_weights(model, world)
            after = gap(model, world)
            if rank == 0:
                print(f"step {step}: gap {before:.4f} before and {after:.4f} after the averaging")
    if rank == 0:
        print("buckets kept local:", state["buckets"] >= 8)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(train, args=(2, os.path.join(folder, "store")), nprocs=2, start_method="fork")
