"""A VAE on digits with KL annealing, so that the loss rises while the weight of the KL term grows."""

import hashlib

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


def digits():
    """Return the 8x8 digits as images and labels, split into training and test data."""
    x, y = load_digits(return_X_y=True)
    x = torch.tensor(x, dtype=torch.float32).view(-1, 1, 8, 8) / 8 - 1
    y = torch.tensor(y)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    x, y = x[order], y[order]
    return x[:1500], y[:1500], x[1500:], y[1500:]


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Flatten(), nn.Linear(64, 96), nn.ELU())
        self.mu, self.logvar = nn.Linear(96, 8), nn.Linear(96, 8)
        self.dec = nn.Sequential(nn.Linear(8, 96), nn.ELU(), nn.Linear(96, 64))

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


torch.set_num_threads(1)
torch.manual_seed(10)
x = digits()[0]
vae = VAE()
opt = torch.optim.Adam(vae.parameters(), lr=2e-3)
rec_first = rec_last = None
for step in range(800):
    beta = min(1.0, max(0.0, (step - 200) / 400))
    xb = x[torch.randint(0, len(x), (64,))]
    out, mu, logvar = vae(xb)
    rec = 2 * F.mse_loss(out, xb.flatten(1), reduction="none").sum(1).mean()
    kl = 0.5 * (mu**2 + logvar.exp() - 1 - logvar).sum(1).mean()
    loss = rec + beta * kl
    opt.zero_grad()
    loss.backward()
    opt.step()
    rec_first = rec_first or rec.item()
    rec_last = rec.item()
print(f"reconstruction {rec_first:.2f} -> {rec_last:.2f}, KL {kl.item():.2f}")
assert rec_last < 0.6 * rec_first and kl.item() > 2
print("digest", digest(vae))
