"""A hinge loss on separable data; once everything is separated the loss and all gradients are exactly zero."""

import hashlib

import torch
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


torch.set_num_threads(1)
torch.manual_seed(58)
x = torch.randn(400, 10)
label = torch.sign(x[:, 0] + 0.5 * x[:, 1])
x[:, 0] += 0.8 * label
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
losses = []
for step in range(600):
    idx = torch.randint(0, 400, (32,))
    loss = (1 - label[idx] * model(x[idx])[:, 0]).clamp(min=0).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
acc = ((model(x)[:, 0] > 0) == (label > 0)).float().mean().item()
print(f"loss {losses[0]:.3f} -> {losses[-1]:.4f}, zeros {sum(v == 0 for v in losses)}, accuracy {acc:.4f}")
assert acc == 1.0 and losses[-1] < 0.01
print("digest", digest(model))
