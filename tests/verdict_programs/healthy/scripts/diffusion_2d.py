"""A denoising diffusion model of two moons, whose loss falls early and is flat and noisy for the rest of the time."""

import hashlib
import math

import torch
from sklearn.datasets import make_moons
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


torch.set_num_threads(1)
torch.manual_seed(12)
data = torch.tensor(make_moons(4000, noise=0.05, random_state=0)[0], dtype=torch.float32)
data = (data - data.mean(0)) / data.std(0)
alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.05, 100), 0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("freqs", torch.exp(torch.arange(8) * (-math.log(100) / 8)))
        self.inp = nn.Linear(2 + 16, 96)
        self.mid = nn.ModuleList(nn.Linear(96, 96) for _ in range(2))
        self.out = nn.Linear(96, 2)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, t):
        arg = t[:, None].float() * self.freqs
        h = nn.functional.silu(self.inp(torch.cat([x, arg.sin(), arg.cos()], 1)))
        for layer in self.mid:
            h = h + nn.functional.silu(layer(h))
        return self.out(h)


net = Denoiser()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
losses = []
for _step in range(1000):
    x0 = data[torch.randint(0, len(data), (128,))]
    t = torch.randint(0, 100, (128,))
    noise = torch.randn_like(x0)
    a = alphas[t][:, None]
    loss = (net(a.sqrt() * x0 + (1 - a).sqrt() * noise, t) - noise).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.3f} -> {sum(losses[300:400]) / 100:.3f} -> {sum(losses[-100:]) / 100:.3f}")
assert sum(losses[-100:]) / 100 < 0.5 * losses[0]
print("digest", digest(net))
