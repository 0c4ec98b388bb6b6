"""The global gradient norm as soon as all gradients are there, with one multi-grad hook over all parameters."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.graph import register_multi_grad_hook

model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
global_norms = []


def log_global_norm(grads):
    global_norms.append(torch.stack([grad.norm() for grad in grads if grad is not None]).norm())


handle = register_multi_grad_hook(tuple(model.parameters()), log_global_norm)
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
losses = []
for step in range(6):
    x, y = torch.randn(16, 8), torch.randint(3, (16,))
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
handle.remove()
result = [losses, global_norms, [p.detach().clone() for p in model.parameters()]]
