"""Lazy layers take their sizes from the first batch (by hooks of their own); the user's hooks come after it."""

import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.LazyConv1d(8, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(16), nn.ReLU(), nn.LazyLinear(3))
model(torch.randn(2, 4, 10))
norms, outputs = {}, []
for name, param in model.named_parameters():
    param.register_hook(lambda grad, name=name: norms.setdefault(name, []).append(grad.norm()))
model[3].register_forward_hook(lambda m, args, out: outputs.append(out.detach().mean()))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for step in range(5):
    x, y = torch.randn(16, 4, 10), torch.randint(3, (16,))
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, norms, outputs, [p.detach().clone() for p in model.parameters()]]
