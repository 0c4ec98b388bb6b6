"""Gradient accumulation with a per-layer log of the accumulated gradient norm."""
import torch
from torch import nn

torch.manual_seed(8)
ACCUM = 4


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(12, 24)
        self.mid = nn.Linear(24, 24)
        self.cls = nn.Linear(24, 3)

    def forward(self, x):
        return self.cls(torch.relu(self.mid(torch.relu(self.inp(x)))))


class GradNormLog:
    """Remembers the norm of .grad for each weight, as it stands after every backward."""

    def __init__(self, model):
        self.norms = {}
        for name, p in model.named_parameters():
            if name.endswith("weight"):
                self.norms[name] = 0.0
                p.register_post_accumulate_grad_hook(self.make(name, p))

    def make(self, name, p):
        def hook(param):
            # p.grad holds the sum over the micro-batches so far
            self.norms[name] = p.grad.norm().item() if p.grad is not None else 0.0
        return hook


model = Encoder()
log = GradNormLog(model)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
g = torch.Generator().manual_seed(80)
off = 0
for step in range(3):
    for micro in range(ACCUM):
        x = torch.randn(16, 12, generator=g)
        y = torch.randint(0, 3, (16,), generator=g)
        loss = nn.functional.cross_entropy(model(x), y) / ACCUM
        loss.backward()
    true = {n: p.grad.norm().item() for n, p in model.named_parameters() if n in log.norms}
    for name, logged in log.norms.items():
        print(f"step {step} {name:12s} logged {logged:.5f}  .grad before the step {true[name]:.5f}")
        off += abs(logged - true[name]) > 1e-6
    opt.step()
    opt.zero_grad()
print("log entries that differ from .grad:", off)
