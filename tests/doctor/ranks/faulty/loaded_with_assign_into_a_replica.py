# TH205 TH514
"""A checkpoint is loaded with assign=True into the wrapped model: hook and reduction stay on the old weights."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()

net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
saved = {name: value.clone() for name, value in net.state_dict().items()}
model = DistributedDataParallel(net)  # <- TH514
net[0].weight.register_hook(lambda grad: grad * 0)  # <- TH205
net.load_state_dict(saved, assign=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(16, 8, generator=torch.Generator().manual_seed(rank))
model(x).square().mean().backward()
optimizer.step()
result = [p.detach().clone() for p in model.parameters()]
dist.destroy_process_group()
