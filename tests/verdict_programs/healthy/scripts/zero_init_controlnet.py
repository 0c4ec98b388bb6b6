"""A frozen network with a trainable copy that is coupled through zero-initialised layers, as in ControlNet."""

import copy
import hashlib

import torch
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


class Controlled(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.control = copy.deepcopy(base).requires_grad_(True)
        self.hint = nn.Linear(2, 16)
        self.zero_in, self.zero_out = nn.Linear(16, 16), nn.Linear(16, 1)
        for layer in (self.zero_in, self.zero_out):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x, hint):
        h = self.control[0](x) + self.zero_in(torch.tanh(self.hint(hint)))
        return self.base(x) + self.zero_out(self.control[1:-1](h))


torch.set_num_threads(1)
torch.manual_seed(43)
base = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.Adam(base.parameters(), lr=5e-3)
for _step in range(300):
    x = torch.randn(64, 4)
    loss = (base(x) - torch.sin(x).sum(1, keepdim=True)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"base loss {loss.item():.4f}")
model = Controlled(base)
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
losses = []
for _step in range(700):
    x, hint = torch.randn(64, 4), torch.randn(64, 2)
    y = torch.sin(x).sum(1, keepdim=True) + hint[:, :1] * 2 + hint[:, 1:] * x[:, :1]
    loss = (model(x, hint) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.3f} -> {sum(losses[-20:]) / 20:.3f}")
assert sum(losses[-20:]) / 20 < 0.2 * losses[0]
print("digest", digest(model))
