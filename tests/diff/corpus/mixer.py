"""An MLP-Mixer with DistributedDataParallel and gloo. Start it with torchrun, or with python for one process."""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--views", action="store_true", help="gradients are views of small buckets")
args = parser.parse_args()
plant = args.plant
torch.set_num_threads(1)
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if world > 1:
    dist.init_process_group("gloo")
torch.manual_seed(121)
step = 0


class Mix(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(12)
        self.tokens = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.channels = nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 12))
        self.drop = nn.Dropout(args.dropout)

    def forward(self, x):
        x = x + self.tokens(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.drop(self.channels(x))


net = nn.Sequential(nn.Linear(6, 12), Mix(), Mix(), nn.Flatten(), nn.Linear(96, 3))
model = net
if world > 1:
    extra = {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.002} if args.views else {}
    model = DistributedDataParallel(net, **extra)
if plant == "scaled-rank":
    net[1].tokens[2].weight.register_hook(lambda grad: grad * 1.1 if rank == 1 and step == 6 else grad)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
g = torch.Generator().manual_seed(122)
for step in range(15):
    x = torch.randn(16, 8, 6, generator=g)
    y = x.mean((1, 2)).mul(15).round().long().clamp(-1, 1) + 1
    part = slice(rank * 16 // world, (rank + 1) * 16 // world)
    if plant == "same-part" and step == 7:
        part = slice(0, 16 // world)
    torch.manual_seed(500 + 10 * step + rank + (plant == "seed-rank" and step == 5 and rank == 1) * 7)
    if plant == "lr" and step >= 5:
        optimizer.param_groups[0]["lr"] = 0.04
    if plant == "decay" and step >= 6:
        optimizer.param_groups[0]["weight_decay"] = 0.1
    if plant == "shift" and step == 6:
        net[2].channels[1].weight.data.add_(0.05)
    local = plant == "no-sync" and step == 4
    with model.no_sync() if local else contextlib.nullcontext():
        loss = F.cross_entropy(model(x[part].clone()), y[part])
        optimizer.zero_grad()
        loss.backward()
    if plant == "sum" and step >= 3:
        for p in net.parameters():
            p.grad.mul_(2)  # as if the gradients were summed over two ranks and not averaged
    optimizer.step()
    if rank == 0:
        print(step, loss.item())
if world > 1:
    dist.destroy_process_group()
