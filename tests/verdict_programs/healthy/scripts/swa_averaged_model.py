"""Stochastic weight averaging with torch.optim.swa_utils, SWALR and a batch-norm update at the end."""

import hashlib

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset


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
torch.manual_seed(33)
x, y, xt, yt = digits()
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
swa = AveragedModel(model)
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=10)
swalr = SWALR(opt, swa_lr=0.1, anneal_epochs=2)
for epoch in range(14):
    total = 0.0
    for xb, yb in loader:
        loss = nn.functional.cross_entropy(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    if epoch >= 8:
        swa.update_parameters(model)
        swalr.step()
    else:
        cosine.step()
    print(f"epoch {epoch} loss {total / len(loader):.4f}")
update_bn(loader, swa)
swa.eval()
acc = (swa(xt).argmax(1) == yt).float().mean().item()
print(f"accuracy of the average {acc:.3f}")
assert acc > 0.95
print("digest", digest(model, swa))
