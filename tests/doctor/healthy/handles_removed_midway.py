"""Debug the first three steps with hooks, take them off by their handles, and train on without."""

import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Dropout(0.1), nn.Linear(20, 3))
debug = []
handles = []
for name, module in model.named_children():
    handles.append(module.register_forward_hook(lambda m, i, o, n=name: debug.append((n, o.detach().abs().max()))))
for name, param in model.named_parameters():
    handles.append(param.register_hook(lambda g, n=name: debug.append((n, g.abs().max()))))

optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for step in range(8):
    if step == 3:
        for handle in handles:
            handle.remove()
        handles.clear()
    x, y = torch.randn(16, 6), torch.randint(3, (16,))
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert len(debug) == 3 * (4 + 4)
result = [losses, [value for _, value in debug], [p.detach().clone() for p in model.parameters()]]
