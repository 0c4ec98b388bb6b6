"""A curriculum that switches to longer sequences at steps 300 and 600, where the loss leaps and falls again."""

import hashlib

import torch
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


class Parity(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 32, batch_first=True)
        self.fc = nn.Linear(32, 1)

    def forward(self, bits):
        return self.fc(self.gru(bits[..., None])[0])[..., 0]


torch.set_num_threads(1)
torch.manual_seed(47)
model = Parity()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
losses = []
for step in range(900):
    length = 3 if step < 300 else (8 if step < 600 else 20)
    bits = torch.randint(0, 2, (48, length)).float()
    loss = nn.functional.binary_cross_entropy_with_logits(model(bits), bits.cumsum(1) % 2)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print("loss " + " -> ".join(f"{losses[i]:.4f}" for i in (0, 299, 301, 599, 601, -1)))
assert sum(losses[-20:]) / 20 < 0.2
print("digest", digest(model))
