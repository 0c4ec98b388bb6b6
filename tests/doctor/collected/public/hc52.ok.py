"""Two-process DDP (gloo) with half-precision gradient compression and error feedback."""
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD_SIZE = 2
STEPS = 25
BATCH = 16


class ErrorFeedback:
    """What rounding to float16 lost is remembered per parameter and added in the next step."""

    def __init__(self, parameters):
        self.residual = {p: torch.zeros_like(p) for p in parameters}

    def largest(self):
        return max(r.abs().max().item() for r in self.residual.values())


def compressed_average(state, bucket):
    buffer = bucket.buffer()
    buffer.div_(dist.get_world_size())
    for param, grad in zip(bucket.parameters(), bucket.gradients()):
        grad.add_(state.residual[param])
        state.residual[param] = grad - grad.to(torch.float16).to(torch.float32)
    future = dist.all_reduce(buffer.to(torch.float16), async_op=True).get_future()

    def write_back(fut):
        buffer.copy_(fut.value()[0])
        return buffer

    return future.then(write_back)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 1)

    def forward(self, x):
        return self.head(self.body(x))


def make_shard(rank, world_size):
    gen = torch.Generator().manual_seed(3)
    x = torch.randn(256, 8, generator=gen)
    y = (x[:, :1] * x[:, 1:2]).tanh() + 0.3 * x[:, 2:3]
    return x[rank::world_size], y[rank::world_size]


def worker(rank, world_size, port):
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(0)

    net = Net()
    model = DDP(net)
    feedback = ErrorFeedback(net.parameters())
    model.register_comm_hook(feedback, compressed_average)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    x, y = make_shard(rank, world_size)
    gen = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        rows = torch.randint(0, len(x), (BATCH,), generator=gen)
        loss = F.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    with torch.no_grad():
        final = F.mse_loss(net(x), y)
    dist.all_reduce(final)
    weights = nn.utils.parameters_to_vector(net.parameters()).detach()
    gathered = [torch.zeros_like(weights) for _ in range(world_size)]
    dist.all_gather(gathered, weights)
    if rank == 0:
        print(f"loss on both shards {final.item() / world_size:.4f}")
        print(f"weights equal on both ranks: {torch.equal(gathered[0], gathered[1])}")
        print(f"rounding errors carried over: {feedback.largest() > 0}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(WORLD_SIZE, port), nprocs=WORLD_SIZE)
