"""bfloat16 gradient compression for DDP through a communication hook."""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def build():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 20), nn.Tanh(), nn.Linear(20, 2))


def data():
    g = torch.Generator().manual_seed(11)
    x = torch.randn(32, 8, generator=g)
    return x, (x[:, 0] * x[:, 1] > 0).long()


def bf16_hook(group, bucket):
    """Send the bucket in half the bytes and hand it back in float32."""
    packed = bucket.buffer().to(torch.bfloat16)
    work = dist.all_reduce(packed, group=group, async_op=True)

    def unpack(future):
        out = bucket.buffer()
        out.copy_(future.value()[0])
        return out

    return work.get_future().then(unpack)


def grad_norm(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item()


def worker(rank, world, rendezvous):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    ddp = DDP(build())
    # only the transport changes; the averaging over the ranks stays with DDP
    ddp.register_comm_hook(dist.group.WORLD, bf16_hook)

    x, y = data()
    half = x.shape[0] // world
    mine = slice(rank * half, (rank + 1) * half)
    loss = nn.functional.cross_entropy(ddp(x[mine]), y[mine])
    loss.backward()

    if rank == 0:
        # the same batch on a single process, without any communication
        single = build()
        nn.functional.cross_entropy(single(x), y).backward()
        a, b = grad_norm(ddp), grad_norm(single)
        print(f"gradient norm  two ranks {a:.3f}   one rank {b:.3f}   ratio {a / b:.1f}")
        opt = torch.optim.SGD(ddp.module.parameters(), lr=0.1)
        before = torch.cat([p.detach().flatten() for p in ddp.parameters()])
        opt.step()
        after = torch.cat([p.detach().flatten() for p in ddp.parameters()])
        print(f"step length {(after - before).norm().item():.4f} at lr 0.1")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(worker, args=(2, os.path.join(folder, "store")), nprocs=2, start_method="fork")
