"""Skip-gram with sparse embedding gradients and Zipf-distributed words, so that most rows are touched only rarely."""

import hashlib

import torch
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


torch.set_num_threads(1)
torch.manual_seed(17)
VOCAB, TOPICS = 2000, 10
prob = 1 / torch.arange(1, VOCAB + 1).float()


class SkipGram(nn.Module):
    def __init__(self):
        super().__init__()
        self.center = nn.Embedding(VOCAB, 16, sparse=True)
        self.context = nn.Embedding(VOCAB, 16, sparse=True)
        nn.init.normal_(self.center.weight, std=0.2)
        nn.init.zeros_(self.context.weight)

    def forward(self, center, pos, neg):
        c = self.center(center)
        good = (c * self.context(pos)).sum(1)
        bad = torch.einsum("bd,bkd->bk", c, self.context(neg))
        return -(nn.functional.logsigmoid(good).mean() + nn.functional.logsigmoid(-bad).sum(1).mean())


model = SkipGram()
opt = torch.optim.SparseAdam(list(model.parameters()), lr=2e-2)
losses = []
for _step in range(600):
    center = torch.multinomial(prob, 128, replacement=True)
    other = torch.multinomial(prob, 128, replacement=True)
    pos = (other - other % TOPICS + center % TOPICS).clamp(max=VOCAB - 1)
    neg = torch.multinomial(prob, 128 * 4, replacement=True).view(128, 4)
    loss = model(center, pos, neg)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.3f} -> {sum(losses[-20:]) / 20:.3f}")
assert sum(losses[-20:]) / 20 < 0.75 * losses[0]
print("digest", digest(model))
