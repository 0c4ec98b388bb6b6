"""Recommender by matrix factorisation with biases, SGD and sparse gradients for users seen once in many steps."""

import hashlib

import torch
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


class MF(nn.Module):
    def __init__(self, users, items):
        super().__init__()
        self.user, self.item = nn.Embedding(users, 8, sparse=True), nn.Embedding(items, 8, sparse=True)
        self.user_bias, self.item_bias = nn.Embedding(users, 1, sparse=True), nn.Embedding(items, 1, sparse=True)
        for table in (self.user, self.item, self.user_bias, self.item_bias):
            nn.init.normal_(table.weight, std=0.3)

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(1) + self.user_bias(u)[:, 0] + self.item_bias(i)[:, 0]


torch.set_num_threads(1)
torch.manual_seed(77)
true = MF(300, 200)
model = MF(300, 200)
opt = torch.optim.SGD(model.parameters(), lr=4.0)
losses = []
for step in range(900):
    u, i = torch.randint(0, 300, (128,)), (torch.rand(128) ** 2 * 200).long()
    with torch.no_grad():
        rating = true(u, i) + 0.05 * torch.randn(128)
    loss = (model(u, i) - rating).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(f"loss {sum(losses[:10]) / 10:.3f} -> {sum(losses[-20:]) / 20:.3f}")
assert sum(losses[-20:]) / 20 < 0.3 * sum(losses[:10]) / 10
print("digest", digest(model))
