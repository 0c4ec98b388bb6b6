"""Data-parallel training (gloo, 2 processes) with the optimizer step inside backward."""
import os
import tempfile
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

LR = 0.1


def sgd_in_backward(param):
    with torch.no_grad():
        param -= LR * param.grad


def worker(rank, world, path):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    ddp = DDP(model)
    for p in ddp.parameters():
        p.register_post_accumulate_grad_hook(sgd_in_backward)

    gen = torch.Generator().manual_seed(100 + rank)
    for step in range(10):
        x = torch.randn(16, 4, generator=gen)
        y = x.sum(1, keepdim=True) + rank
        loss = (ddp(x) - y).pow(2).mean()
        ddp.zero_grad()
        loss.backward()

    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    grad = torch.cat([p.grad.flatten() for p in model.parameters()])
    both = [torch.zeros_like(flat) for _ in range(world)]
    grads = [torch.zeros_like(grad) for _ in range(world)]
    dist.all_gather(both, flat)
    dist.all_gather(grads, grad)
    if rank == 0:
        print(f"gradients after backward, difference between ranks: {(grads[0] - grads[1]).abs().max():.6f}")
        print(f"weights, difference between ranks: {(both[0] - both[1]).abs().max():.6f}")
        print("weights rank 0:", [round(v, 3) for v in both[0][:5].tolist()])
        print("weights rank 1:", [round(v, 3) for v in both[1][:5].tolist()])
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as d:
        ctx = mp.get_context("fork")
        procs = [ctx.Process(target=worker, args=(r, 2, os.path.join(d, "init"))) for r in range(2)]
        for p in procs:
            p.start()
        for p in procs:
            p.join()
