"""XOR fitted to numerical precision in float64, with gradients that fall to 1e-10 and below."""

import hashlib

import torch
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


torch.set_num_threads(1)
torch.manual_seed(59)
x = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=torch.float64)
y = torch.tensor([[0], [1], [1], [0]], dtype=torch.float64)
model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1)).double()
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(1500):
    loss = nn.functional.mse_loss(model(x), y)
    if step == 0:
        first = loss.item()
    opt.zero_grad()
    loss.backward()
    opt.step()
norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm().item()
print(f"loss {first:.3f} -> {loss.item():.2e}, gradient norm {norm:.2e}")
assert loss.item() < 1e-18
print("digest", digest(model))
