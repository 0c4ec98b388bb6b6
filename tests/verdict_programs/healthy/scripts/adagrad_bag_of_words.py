"""Text classification with an embedding bag of rare words and Adagrad."""

import hashlib

import torch
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


torch.set_num_threads(1)
torch.manual_seed(26)
VOCAB = 3000
polarity = torch.randn(VOCAB)


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(VOCAB, 16, mode="mean", padding_idx=0)
        self.fc = nn.Linear(16, 1)

    def forward(self, words, offsets):
        return self.fc(self.bag(words, offsets))[:, 0]


model = Bag()
opt = torch.optim.Adagrad(model.parameters(), lr=0.2)
losses = []
for step in range(800):
    lengths = torch.randint(3, 40, (64,))
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]])
    words = (torch.rand(int(lengths.sum())) ** 3 * VOCAB).long()
    doc = torch.repeat_interleave(torch.arange(64), lengths)
    label = (torch.zeros(64).index_add(0, doc, polarity[words]) > 0).float()
    loss = nn.functional.binary_cross_entropy_with_logits(model(words, offsets), label)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.3f} -> {sum(losses[-30:]) / 30:.3f}")
assert sum(losses[-30:]) / 30 < 0.6 * losses[0]
print("digest", digest(model))
