"""Sequence recognition with a CTC loss, which has a long plateau (all blanks) before it falls."""

import hashlib

import torch
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


class Recognizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(6, 32, 3, padding=1)
        self.rnn = nn.GRU(32, 32, batch_first=True, bidirectional=True)
        self.out = nn.Linear(64, 7)

    def forward(self, x):
        h = self.conv(x.transpose(1, 2)).relu().transpose(1, 2)
        return self.out(self.rnn(h)[0]).log_softmax(2)


torch.set_num_threads(1)
torch.manual_seed(81)
model = Recognizer()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
criterion = nn.CTCLoss(zero_infinity=True)
templates = torch.randn(6, 3, 6)
losses = []
for _step in range(600):
    labels = torch.randint(0, 6, (16, 4))
    x = templates[labels].flatten(1, 2) + 0.2 * torch.randn(16, 12, 6)
    logp = model(x).transpose(0, 1)
    loss = criterion(logp, labels + 1, torch.full((16,), 12), torch.full((16,), 4))
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    opt.step()
    losses.append(loss.item())
print("loss " + " -> ".join(f"{losses[i]:.3f}" for i in (0, 50, 100, 599)))
assert losses[-1] < 0.1 * losses[0]
print("digest", digest(model))
