"""Keep what the backward needs in half precision (saved tensor hooks); a parameter hook cleans the gradient."""

import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.Linear(10, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))
packed = []


def pack(tensor):
    if isinstance(tensor, nn.Parameter) or tensor.dtype != torch.float32:
        return tensor
    packed.append(tensor.numel())
    return tensor.to(torch.bfloat16)


def unpack(value):
    return value.to(torch.float32) if value.dtype == torch.bfloat16 else value


for param in model.parameters():
    param.register_hook(lambda grad: torch.nan_to_num(grad))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(5):
    x = torch.randn(32, 10)
    y = (x.sum(dim=1) > 0).long()
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, packed, [p.detach().clone() for p in model.parameters()]]
