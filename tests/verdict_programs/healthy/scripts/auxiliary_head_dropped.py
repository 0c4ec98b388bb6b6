"""An Inception-like auxiliary classifier that is used for 300 steps only and then switched off on purpose."""

import hashlib

import torch
from sklearn.datasets import load_digits
from torch import nn


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


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
        self.aux, self.head = nn.Linear(64, 10), nn.Linear(64, 10)

    def forward(self, x, with_aux):
        h = self.stem(x)
        return self.head(self.top(h)), self.aux(h) if with_aux else None


torch.set_num_threads(1)
torch.manual_seed(73)
x, y, xt, yt = digits()
model = Net()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
ce = nn.functional.cross_entropy
for step in range(550):
    idx = torch.randint(0, len(x), (32,))
    out, aux = model(x[idx], step < 300)
    loss = ce(out, y[idx]) + (0.3 * ce(aux, y[idx]) if aux is not None else 0.0)
    opt.zero_grad()
    loss.backward()
    opt.step()
acc = (model(xt, False)[0].argmax(1) == yt).float().mean().item()
print(f"loss {loss.item():.4f}, accuracy {acc:.3f}")
assert acc > 0.93
print("digest", digest(model))
