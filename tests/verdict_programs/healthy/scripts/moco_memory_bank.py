"""Contrastive learning with momentum encoder and memory bank; the loss rises while the queue fills."""

import copy
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


torch.set_num_threads(1)
torch.manual_seed(11)
x, y, xt, yt = digits()


def augment(a):
    a = torch.roll(a, shifts=(int(torch.randint(-1, 2, (1,))), int(torch.randint(-1, 2, (1,)))), dims=(2, 3))
    return a * (torch.rand_like(a) > 0.1) + 0.1 * torch.randn_like(a)


encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 32))
momentum_encoder = copy.deepcopy(encoder).requires_grad_(False)
queue = F.normalize(torch.randn(512, 32), dim=1)
opt = torch.optim.SGD(encoder.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
pointer, accs = 0, []
for _step in range(600):
    xb = x[torch.randint(0, len(x), (64,))]
    q = F.normalize(encoder(augment(xb)), dim=1)
    with torch.no_grad():
        for p, m in zip(encoder.parameters(), momentum_encoder.parameters()):
            m.mul_(0.98).add_(p, alpha=0.02)
        k = F.normalize(momentum_encoder(augment(xb)), dim=1)
    logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T.clone()], 1) / 0.1
    loss = F.cross_entropy(logits, torch.zeros(64, dtype=torch.long))
    opt.zero_grad()
    loss.backward()
    opt.step()
    queue[pointer : pointer + 64] = k
    pointer = (pointer + 64) % 512
    accs.append(loss.item())
encoder.eval()
with torch.no_grad():
    a, b = F.normalize(encoder(x), dim=1), F.normalize(encoder(xt), dim=1)
    acc = (y[(b @ a.T).argmax(1)] == yt).float().mean().item()
print(f"loss at 20 {accs[20]:.3f} -> {sum(accs[-20:]) / 20:.3f}, nearest neighbour {acc:.3f}")
assert sum(accs[-20:]) / 20 < 0.85 * accs[20] and acc > 0.88
print("digest", digest(encoder))
