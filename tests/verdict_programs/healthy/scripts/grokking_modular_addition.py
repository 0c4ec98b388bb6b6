"""Modular addition with strong weight decay: the training loss is on a plateau at first and then falls to zero."""

import hashlib

import torch
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


class Net(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.emb = nn.Embedding(p, 48)
        self.fc1, self.fc2 = nn.Linear(96, 128), nn.Linear(128, p)

    def forward(self, pairs):
        return self.fc2(self.fc1(self.emb(pairs).flatten(1)).relu())


torch.set_num_threads(1)
torch.manual_seed(52)
P = 31
pairs = torch.cartesian_prod(torch.arange(P), torch.arange(P))
labels = pairs.sum(1) % P
order = torch.randperm(len(pairs))
train, test = order[:700], order[700:]
model = Net(P)
nn.init.normal_(model.emb.weight, std=0.02)
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.5, betas=(0.9, 0.98))
losses = []
for _step in range(900):
    idx = train[torch.randint(0, 700, (256,))]
    loss = nn.functional.cross_entropy(model(pairs[idx]), labels[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
acc = (model(pairs[test]).argmax(1) == labels[test]).float().mean().item()
print("loss " + " -> ".join(f"{losses[i]:.4f}" for i in (0, 20, 100, 300, 600, -1)) + f", test accuracy {acc:.3f}")
assert losses[-1] < 0.05
print("digest", digest(model))
