"""Muon for the hidden matrices and AdamW for embedding, biases and head, both stepped in every iteration."""

import hashlib

import torch
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20, 24)
        self.hidden = nn.ModuleList([nn.Linear(96, 64, bias=False), nn.Linear(64, 64, bias=False)])
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, 20)

    def forward(self, x):
        h = self.emb(x).flatten(1)
        for layer in self.hidden:
            h = nn.functional.relu(layer(h)).square()
        return self.head(self.norm(h))


torch.set_num_threads(1)
torch.manual_seed(31)
model = Net()
muon = torch.optim.Muon(model.hidden.parameters(), lr=0.02, weight_decay=0.01)
adamw = torch.optim.AdamW([*model.emb.parameters(), *model.norm.parameters(), *model.head.parameters()], lr=3e-3)
table = torch.randint(0, 20, (20, 20))
losses = []
for _step in range(600):
    x = torch.randint(0, 20, (64, 4))
    y = table[x[:, 0], x[:, 3]]
    loss = nn.functional.cross_entropy(model(x), y)
    for opt in (muon, adamw):
        opt.zero_grad()
    loss.backward()
    for opt in (muon, adamw):
        opt.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
assert losses[-1] < 0.4 * losses[0]
print("digest", digest(model))
