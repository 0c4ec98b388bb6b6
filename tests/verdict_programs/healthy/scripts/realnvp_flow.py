"""A RealNVP flow whose loss is negative and whose last layers of the couplings start at zero."""

import hashlib

import torch
from sklearn.datasets import make_moons
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


class Coupling(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        a, b = x.chunk(2, 1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, 1)
        s = torch.tanh(s) * 2
        b = b * s.exp() + t
        return torch.cat([b, a] if self.flip else [a, b], 1), s[:, 0]


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(i % 2 == 1) for i in range(6))

    def forward(self, x):
        total = 0.0
        for layer in self.layers:
            x, logdet = layer(x)
            total = total + logdet
        return total - 0.5 * (x**2).sum(1) - 1.8379


torch.set_num_threads(1)
torch.manual_seed(56)
data = torch.tensor(make_moons(3000, noise=0.04, random_state=0)[0], dtype=torch.float32) * 0.3
flow = Flow()
opt = torch.optim.Adam(flow.parameters(), lr=2e-3)
losses = []
for _step in range(600):
    loss = -flow(data[torch.randint(0, len(data), (128,))]).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
    opt.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.3f} -> {sum(losses[-50:]) / 50:.3f}")
assert sum(losses[-50:]) / 50 < -0.3
print("digest", digest(flow))
