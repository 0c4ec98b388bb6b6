"""A VQ-VAE with straight-through gradients, in which some codes are not used by a batch."""

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


class VQVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Flatten(), nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32))
        self.codes = nn.Embedding(32, 8)
        self.dec = nn.Sequential(nn.Linear(32, 96), nn.ReLU(), nn.Linear(96, 64))

    def forward(self, x):
        z = self.enc(x).view(-1, 8)
        idx = torch.cdist(z, self.codes.weight).argmin(1)
        q = self.codes(idx)
        extra = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        q = z + (q - z).detach()
        return self.dec(q.view(-1, 32)), extra


torch.set_num_threads(1)
torch.manual_seed(64)
x = digits()[0]
model = VQVAE()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
for _step in range(600):
    xb = x[torch.randint(0, len(x), (64,))]
    out, extra = model(xb)
    rec = F.mse_loss(out, xb.flatten(1))
    opt.zero_grad()
    (rec + extra).backward()
    opt.step()
    losses.append(rec.item())
print(f"reconstruction {losses[0]:.3f} -> {losses[-1]:.3f}")
assert losses[-1] < 0.5 * losses[0]
print("digest", digest(model))
