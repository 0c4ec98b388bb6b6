"""Fine-tuning with layer-wise learning rates that fall by a factor of four per layer towards the input."""

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
torch.manual_seed(82)
x, y, xt, yt = digits()
layers = [nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)]
model = nn.Sequential(nn.Flatten(), *[m for layer in layers[:-1] for m in (layer, nn.ReLU())], layers[-1])
opt = torch.optim.AdamW(
    [{"params": layer.parameters(), "lr": 4e-3 * 4.0**-depth} for depth, layer in enumerate(reversed(layers))],
    weight_decay=0.05,
)
losses = []
for _step in range(600):
    idx = torch.randint(0, len(x), (32,))
    loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
acc = (model(xt).argmax(1) == yt).float().mean().item()
print(f"loss {losses[0]:.3f} -> {losses[-1]:.4f}, accuracy {acc:.3f}")
assert acc > 0.92
print("digest", digest(model))
