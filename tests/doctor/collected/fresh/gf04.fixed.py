"""Two-process DDP training (gloo) that logs the size of the global gradient for every layer."""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD = 2


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 10)
        self.fc2 = nn.Linear(10, 1)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x))).squeeze(-1)


class GradLogger:
    """Keeps the norm of the averaged gradient of every parameter, one entry per step."""

    def __init__(self, named_params):
        named_params = list(named_params)
        self.norms = {name: [] for name, _ in named_params}
        self.params = dict(named_params)

    def log(self):
        """Call after backward(), when DDP has written the averaged gradients."""
        for name, p in self.params.items():
            self.norms[name].append(p.grad.norm().item())


def shard(rank):
    """Every rank reads its own part of the data; the second part is from another site."""
    g = torch.Generator().manual_seed(100 + rank)
    x = torch.randn(32, 6, generator=g)
    y = x[:, 0] * (1.0 if rank == 0 else -1.0) + rank
    return x, y


def worker(rank, store, out):
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    torch.manual_seed(0)
    model = DDP(MLP())
    logger = GradLogger(model.module.named_parameters())
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    x, y = shard(rank)
    for xb, yb in zip(x.split(8), y.split(8)):
        opt.zero_grad()
        nn.functional.mse_loss(model(xb), yb).backward()
        logger.log()
        opt.step()
    torch.save(logger.norms, f"{out}.{rank}")
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as tmp:
        store, out = os.path.join(tmp, "store"), os.path.join(tmp, "norms")
        mp.start_processes(worker, args=(store, out), nprocs=WORLD, start_method="fork")
        logs = [torch.load(f"{out}.{r}") for r in range(WORLD)]
    for name in logs[0]:
        for r in range(WORLD):
            print(f"rank {r} {name:11s}", [round(v, 3) for v in logs[r][name]])
    same = all(abs(a - b) < 1e-5 for n in logs[0] for a, b in zip(logs[0][n], logs[1][n]))
    print("ranks agree on the gradient norms:", same)
