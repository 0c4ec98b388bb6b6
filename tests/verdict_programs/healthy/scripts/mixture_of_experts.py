"""A top-1 mixture of experts in which some experts receive no token in some steps and therefore have no gradient."""

import hashlib

import torch
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


class MoE(nn.Module):
    def __init__(self, width=32, experts=6):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, width)) for _ in range(experts)
        )

    def forward(self, x):
        probs = self.gate(x).softmax(-1)
        weight, choice = probs.max(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = (choice == i).nonzero()[:, 0]
            if len(rows):
                out = out.index_add(0, rows, expert(x[rows]) * weight[rows, None])
        share = nn.functional.one_hot(choice, len(self.experts)).float().mean(0)
        return x + out, len(self.experts) * (share * probs.mean(0)).sum()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.moe, self.norm, self.out = nn.Linear(8, 32), MoE(), nn.LayerNorm(32), nn.Linear(32, 1)

    def forward(self, x):
        h, aux = self.moe(self.inp(x))
        return self.out(self.norm(h))[:, 0], aux


torch.set_num_threads(1)
torch.manual_seed(18)
centers = torch.randn(6, 8) * 2
slopes = torch.randn(6, 8)
model = Model()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
losses = []
for _step in range(800):
    c = torch.randint(0, 6, (12,))
    x = centers[c] + 0.5 * torch.randn(12, 8)
    y = (slopes[c] * (x - centers[c])).sum(1) + c
    pred, aux = model(x)
    mse = (pred - y).pow(2).mean()
    opt.zero_grad()
    (mse + 0.02 * aux).backward()
    opt.step()
    losses.append(mse.item())
print(f"mse {sum(losses[:5]) / 5:.3f} -> {sum(losses[-50:]) / 50:.3f}")
assert sum(losses[-50:]) / 50 < 0.25 * sum(losses[:5]) / 5
print("digest", digest(model))
