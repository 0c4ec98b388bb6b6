"""Targets in tiny units: the loss is about 1e-6 and an own optimizer normalises the gradient."""

import hashlib

import torch
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


class NormalizedSGD(torch.optim.Optimizer):
    """Gradient descent with the gradient of every tensor scaled to unit norm."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad / (p.grad.norm() + 1e-20), alpha=-group["lr"])


torch.set_num_threads(1)
torch.manual_seed(62)
x = torch.rand(1000, 4)
y = 1e-3 * (x[:, :1] * x[:, 1:2] + x[:, 2:3] ** 2)
model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
with torch.no_grad():
    model[2].weight.mul_(1e-2)
    model[2].bias.zero_()
opt = NormalizedSGD(model.parameters(), lr=5e-4)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=600)
losses = []
for _step in range(600):
    idx = torch.randint(0, 1000, (64,))
    loss = (model(x[idx]) - y[idx]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.2e} -> {sum(losses[-20:]) / 20:.2e}")
assert sum(losses[-20:]) / 20 < 0.1 * losses[0]
print("digest", digest(model))
