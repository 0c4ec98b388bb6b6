"""A loss that is summed over batches of 1 to 64 sequences; the gradient norm varies by 30 and more."""

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


torch.set_num_threads(1)
torch.manual_seed(60)
x, y, xt, yt = digits()
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
per_sample = []
for _step in range(600):
    size = int(torch.randint(0, 7, (1,)))
    idx = torch.randint(0, len(x), (2**size,))
    loss = nn.functional.cross_entropy(model(x[idx]), y[idx], reduction="sum")
    opt.zero_grad()
    loss.backward()
    opt.step()
    per_sample.append(loss.item() / len(idx))
acc = (model(xt).argmax(1) == yt).float().mean().item()
print(f"loss per sample {per_sample[0]:.3f} -> {sum(per_sample[-50:]) / 50:.4f}, accuracy {acc:.3f}")
assert acc > 0.92
print("digest", digest(model))
