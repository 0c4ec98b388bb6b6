"""Two-process training with half-precision gradient exchange."""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

WORLD_SIZE = 2
STEPS = 25
LR = 0.2


def build_model():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 1))


def build_data():
    gen = torch.Generator().manual_seed(3)
    x = torch.randn(128, 12, generator=gen)
    y = torch.sin(x[:, :3].sum(dim=1, keepdim=True))
    return x, y


def exchange_in_half(group, bucket):
    packed = bucket.buffer().to(torch.float16)
    future = dist.all_reduce(packed, group=group, async_op=True).get_future()

    def unpack(fut):
        buffer = bucket.buffer()
        buffer.copy_(fut.value()[0])
        buffer /= group.size()
        return buffer

    return future.then(unpack)


def fit(model, x, y):
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for _ in range(STEPS):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def evaluate(model, x, y):
    with torch.no_grad():
        return nn.functional.mse_loss(model(x), y).item()


def worker(rank, rendezvous, result_path):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}",
                            rank=rank, world_size=WORLD_SIZE)
    x, y = build_data()
    model = DistributedDataParallel(build_model())
    model.register_comm_hook(dist.group.WORLD, exchange_in_half)
    fit(model, x[rank::WORLD_SIZE], y[rank::WORLD_SIZE])
    if rank == 0:
        torch.save(model.module.state_dict(), result_path)
    dist.barrier()
    dist.destroy_process_group()


def main():
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    x, y = build_data()
    with tempfile.TemporaryDirectory() as folder:
        result_path = os.path.join(folder, "model.pt")
        mp.start_processes(worker, args=(os.path.join(folder, "init"), result_path), nprocs=WORLD_SIZE,
                           start_method="fork")
        trained = build_model()
        trained.load_state_dict(torch.load(result_path))

    reference = build_model()
    fit(reference, x, y)
    print(f"loss with one process:   {evaluate(reference, x, y):.3f}")
    print(f"loss with two processes: {evaluate(trained, x, y):.3f}")
    gap = max((a - b).abs().max().item()
              for a, b in zip(trained.parameters(), reference.parameters()))
    print(f"largest weight difference: {gap:.2f}")


if __name__ == "__main__":
    main()
