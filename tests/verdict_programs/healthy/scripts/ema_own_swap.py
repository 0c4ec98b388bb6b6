"""Own exponential moving average of the weights that is swapped into the model for every evaluation and back again."""

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


class EMA:
    """Keep a moving average of the parameters and swap it in and out."""

    def __init__(self, module, decay):
        self.module, self.decay = module, decay
        self.shadow = {k: v.detach().clone() for k, v in module.named_parameters()}

    @torch.no_grad()
    def update(self):
        for k, v in self.module.named_parameters():
            self.shadow[k].lerp_(v, 1 - self.decay)

    @torch.no_grad()
    def swap(self):
        for k, v in self.module.named_parameters():
            saved = v.detach().clone()
            v.copy_(self.shadow[k])
            self.shadow[k].copy_(saved)


torch.set_num_threads(1)
torch.manual_seed(32)
x, y, xt, yt = digits()
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
ema = EMA(model, 0.98)
opt = torch.optim.SGD(model.parameters(), lr=0.3)
for step in range(600):
    idx = torch.randint(0, len(x), (16,))
    loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    ema.update()
    if step % 100 == 99:
        ema.swap()
        with torch.no_grad():
            acc = (model(xt).argmax(1) == yt).float().mean().item()
        print(f"step {step} accuracy of the average {acc:.3f}")
        ema.swap()
assert acc > 0.93
print("digest", digest(model))
