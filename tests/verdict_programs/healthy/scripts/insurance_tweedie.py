"""Poisson regression of claim counts with a few heavy policies, whose rare large losses are natural."""

import hashlib

import torch
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


torch.set_num_threads(1)
torch.manual_seed(23)
x = torch.randn(8000, 5)
exposure = torch.exp(0.7 * torch.randn(8000))
rate = exposure * torch.exp(0.5 * x[:, 0] - 0.4 * x[:, 1] + 0.3 * x[:, 2] * x[:, 3])
y = torch.poisson(rate)
net = nn.Sequential(nn.Linear(5, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 1))
opt = torch.optim.NAdam(net.parameters(), lr=2e-3)
losses = []
for step in range(600):
    idx = torch.randint(0, len(x), (32,))
    log_rate = net(x[idx])[:, 0] + exposure[idx].log()
    loss = nn.functional.poisson_nll_loss(log_rate, y[idx], full=True)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
with torch.no_grad():
    corr = torch.corrcoef(torch.stack([net(x)[:, 0], (rate / exposure).log()]))[0, 1].item()
print(f"loss {sum(losses[:20]) / 20:.3f} -> {sum(losses[-50:]) / 50:.3f}, correlation {corr:.3f}")
assert corr > 0.9
print("digest", digest(net))
