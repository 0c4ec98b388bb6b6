"""Rare positives (2 %) with a class weight of 30; single batches have a loss ten times as large."""

import hashlib

import torch
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


torch.set_num_threads(1)
torch.manual_seed(76)
x = torch.randn(10000, 8)
score = x[:, 0] + x[:, 1] * x[:, 2] + 0.3 * torch.randn(10000)
y = (score > score.quantile(0.98)).float()
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(30.0))
losses = []
for _step in range(650):
    idx = torch.randint(0, 9000, (16,))
    loss = criterion(model(x[idx])[:, 0], y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
with torch.no_grad():
    out = model(x[9000:])[:, 0]
pos, neg = out[y[9000:] > 0], out[y[9000:] == 0]
auc = (pos[:, None] > neg[None]).float().mean().item()
print(f"loss {sum(losses[:50]) / 50:.3f} -> {sum(losses[-100:]) / 100:.3f}, AUC {auc:.3f}")
assert auc > 0.95
print("digest", digest(model))
