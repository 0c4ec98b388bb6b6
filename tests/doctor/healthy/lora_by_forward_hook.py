"""LoRA without touching the model: forward hooks add the low-rank path to frozen linear layers."""

import torch
import torch.nn.functional as F
from torch import nn


class LoRA(nn.Module):
    def __init__(self, layer, rank=2, alpha=4):
        super().__init__()
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) * 0.1)
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))
        self.scale = alpha / rank
        self.handle = layer.register_forward_hook(self.add)

    def add(self, layer, args, output):
        return output + self.scale * F.linear(F.linear(args[0], self.down), self.up)


model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
model.requires_grad_(False)
adapters = nn.ModuleList(LoRA(layer) for layer in model if isinstance(layer, nn.Linear))
norms = []
for adapter in adapters:
    adapter.up.register_hook(lambda grad: norms.append(grad.norm()))
optimizer = torch.optim.AdamW(adapters.parameters(), lr=1e-2, weight_decay=0.0)
losses = []
for step in range(6):
    x = torch.randn(32, 8)
    y = x[:, :3].argmax(dim=1)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
for adapter in adapters:
    adapter.handle.remove()
result = [losses, norms, [p.detach().clone() for p in adapters.parameters()], list(model.state_dict().values())]
