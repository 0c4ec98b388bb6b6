"""Full-batch regression with L-BFGS and a closure, four inner iterations in each of 500 steps."""

import hashlib

import torch
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


torch.set_num_threads(1)
torch.manual_seed(29)
x = torch.linspace(-3, 3, 200)[:, None]
y = torch.sin(2 * x) + 0.3 * x**2
model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=4, line_search_fn="strong_wolfe")
losses = []
for _step in range(500):

    def closure():
        opt.zero_grad()
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        return loss

    losses.append(opt.step(closure).item())
print(f"loss {losses[0]:.3f} -> {losses[-1]:.2e}")
assert losses[-1] < 1e-3 * losses[0]
print("digest", digest(model))
