"""Data parallel training on the CPU. Start it with torchrun, or with python for one process."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
args = parser.parse_args()
plant = args.plant
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if world > 1:
    dist.init_process_group("gloo")
torch.manual_seed(111)
step = 0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 12, 3, padding=1)
        self.mid = nn.ModuleList([nn.Linear(12, 12) for _ in range(3)])
        self.readout = nn.Linear(12, 3)

    def forward(self, x):
        x = torch.relu(self.conv(x)).mean(2)
        for layer in self.mid:
            x = x + torch.tanh(layer(x))
        return self.readout(x)


def average(_, bucket):
    """Sum over the ranks and divide by their number."""
    factor = 1 if plant == "no-divide" and step == 4 else world
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda f: f.value()[0].div_(factor))


net = Net()
model = net
if world > 1:
    model = DistributedDataParallel(net)
    model.register_comm_hook(None, average)
local = {}
net.mid[1].weight.register_hook(lambda grad: local.update(weight=grad.clone()))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
g = torch.Generator().manual_seed(112)
for step in range(8):
    x = torch.randn(16, 4, 10, generator=g)
    y = (x.mean((1, 2)) * 40).long().clamp(-1, 1) + 1
    part = slice(rank * 16 // world, (rank + 1) * 16 // world)
    x, y = x[part].clone(), y[part]
    if plant == "bad-rank" and step == 3 and rank == world - 1:
        x[0] = 0
    if plant == "wild-rank" and step == 2 and rank == world - 1:
        x.mul_(3)
    if plant == "lr" and step >= 3:
        optimizer.param_groups[0]["lr"] = 0.08
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    if plant == "unreduced" and step == 2 and rank == 1:
        net.mid[1].weight.grad.copy_(local["weight"])
    if plant == "flip-sign" and step == 5:
        net.mid[2].weight.grad.neg_()
    optimizer.step()
    if rank == 0:
        print(step, loss.item())
if world > 1:
    dist.destroy_process_group()
