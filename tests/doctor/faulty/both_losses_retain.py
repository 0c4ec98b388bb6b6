# TH504
"""Two losses of one forward: the first backward has to keep the graph, the second keeps it for nobody."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
means = []
model[1].register_forward_hook(lambda m, args, out: means.append(out.detach().mean()))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for batch in torch.randn(4, 6, 4):
    optimizer.zero_grad()
    out = model(batch)
    out[:, 0].pow(2).mean().backward(retain_graph=True)
    out[:, 1].abs().mean().backward(retain_graph=True)  # <- TH504
    optimizer.step()
result = [torch.stack(means), model[0].weight.detach()]
