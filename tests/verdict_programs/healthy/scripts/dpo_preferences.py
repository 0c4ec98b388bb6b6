"""Preference tuning (DPO) of a policy against a frozen reference; the loss starts at log 2 and falls slowly."""

import copy
import hashlib

import torch
from torch import nn
from torch.nn import functional as F


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(16, 24), nn.GRU(24, 48, batch_first=True), nn.Linear(48, 16)

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0])

    def logp(self, ids):
        lp = self(ids[:, :-1]).log_softmax(-1)
        return lp.gather(2, ids[:, 1:, None])[..., 0].sum(1)


torch.set_num_threads(1)
torch.manual_seed(69)
policy = LM()
opt = torch.optim.Adam(policy.parameters(), lr=2e-3)
for _step in range(150):
    loss = -policy.logp(torch.randint(0, 16, (32, 10))).mean() / 9
    opt.zero_grad()
    loss.backward()
    opt.step()
reference = copy.deepcopy(policy).eval().requires_grad_(False)
opt = torch.optim.AdamW(policy.parameters(), lr=2e-4)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 50))
losses = []
for _step in range(550):
    a, b = torch.randint(0, 16, (2, 24, 10))
    better = ((a % 2 == 0).sum(1) >= (b % 2 == 0).sum(1))[:, None]
    good, bad = torch.where(better, a, b), torch.where(better, b, a)
    margin = (policy.logp(good) - reference.logp(good)) - (policy.logp(bad) - reference.logp(bad))
    loss = -F.logsigmoid(0.1 * margin).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.3f} -> {sum(losses[-30:]) / 30:.3f}")
assert sum(losses[-30:]) / 30 < 0.75 * losses[0]
print("digest", digest(policy))
