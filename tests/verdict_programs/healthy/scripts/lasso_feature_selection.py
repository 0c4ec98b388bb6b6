"""L1-regularised regression by proximal steps: most input weights go to exactly zero, as intended."""

import hashlib

import torch
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


torch.set_num_threads(1)
torch.manual_seed(78)
x = torch.randn(500, 60)
y = 3 * x[:, 0] - 2 * x[:, 1] + x[:, 2] + 0.1 * torch.randn(500)
model = nn.Linear(60, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
losses = []
for _step in range(600):
    idx = torch.randint(0, 500, (50,))
    loss = (model(x[idx])[:, 0] - y[idx]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        w = model.weight
        w.copy_(w.sign() * (w.abs() - 0.05 * 0.2).clamp(min=0))
    losses.append(loss.item())
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, weights not zero {int((model.weight != 0).sum())}")
assert losses[-1] < 0.05 * losses[0] and int((model.weight != 0).sum()) < 30
print("digest", digest(model))
