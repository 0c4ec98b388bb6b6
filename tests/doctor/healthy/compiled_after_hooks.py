"""Register all hooks first, then compile the model and train it."""

import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))


class DeadUnits:
    def __init__(self):
        self.shares = []

    def __call__(self, module, inputs, output):
        self.shares.append((output == 0).float().mean().detach())


dead = [DeadUnits() for layer in model if isinstance(layer, nn.ReLU)]
for layer, watcher in zip((m for m in model if isinstance(m, nn.ReLU)), dead):
    layer.register_forward_hook(watcher)
for param in model.parameters():
    param.register_hook(lambda grad: grad.clamp(-0.02, 0.02))

compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(compiled.parameters(), lr=0.2)
losses = []
for step in range(5):
    x, y = torch.randn(16, 8), torch.randint(3, (16,))
    optimizer.zero_grad()
    loss = F.cross_entropy(compiled(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
torch.compiler.reset()
result = [losses, [watcher.shares for watcher in dead], [p.detach().clone() for p in model.parameters()]]
