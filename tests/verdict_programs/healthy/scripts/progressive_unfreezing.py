"""ULMFiT-like progressive unfreezing: the top layer first, then one more layer every 150 steps with a lower rate."""

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
torch.manual_seed(15)
x, y, xt, yt = digits()
layers = [
    nn.Sequential(nn.Linear(64, 80), nn.ReLU()),
    nn.Sequential(nn.Linear(80, 80), nn.ReLU()),
    nn.Sequential(nn.Linear(80, 80), nn.ReLU()),
    nn.Linear(80, 10),
]
model = nn.Sequential(nn.Flatten(), *layers)
for layer in layers[:-1]:
    layer.requires_grad_(False)
opt = torch.optim.Adam(layers[-1].parameters(), lr=3e-3)
waiting = layers[:-1]
losses = []
for step in range(700):
    if step and step % 150 == 0 and waiting:
        layer = waiting.pop()
        layer.requires_grad_(True)
        opt.add_param_group({"params": layer.parameters(), "lr": opt.param_groups[-1]["lr"] / 1.5})
    idx = torch.randint(0, len(x), (32,))
    loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
acc = (model(xt).argmax(1) == yt).float().mean().item()
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, accuracy {acc:.3f}")
assert acc > 0.93
print("digest", digest(model))
