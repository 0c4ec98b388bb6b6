"""Fine-tune a small encoder by gradual unfreezing, with the gradient of every tensor held below a norm."""
import torch
from torch import nn
from collections import defaultdict

torch.manual_seed(11)
MAX_NORM = 0.05


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.block1 = nn.Sequential(nn.Linear(16, 48), nn.GELU())
        self.block2 = nn.Sequential(nn.Linear(48, 48), nn.GELU())
        self.head = nn.Linear(48, 4)

    def forward(self, x):
        return self.head(self.block2(self.block1(x)))


class GradGuard:
    """Shrinks the gradient of each trained tensor to MAX_NORM and remembers the size it let through."""

    def __init__(self, model):
        self.passed = defaultdict(list)
        for name, p in model.named_parameters():
            if p.requires_grad:
                p.register_hook(self.make(name))

    def make(self, name):
        def hook(g):
            out = g * min(1.0, MAX_NORM / (g.norm().item() + 1e-12))
            self.passed[name].append(out.norm().item())
            return out
        return hook


def set_trainable(module, flag):
    for p in module.parameters():
        p.requires_grad_(flag)


torch.manual_seed(11)
x = torch.randn(256, 16)
y = (x[:, :4] * 3).argmax(dim=1)
model = Encoder()

guard = GradGuard(model)         # while every tensor still requires a gradient

# stage 0 trains the head only; every stage opens one more block
set_trainable(model.block1, False)
set_trainable(model.block2, False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

for stage, newly_open in enumerate([None, model.block2, model.block1]):
    if newly_open is not None:
        set_trainable(newly_open, True)
    guard.passed.clear()
    for step in range(15):
        idx = torch.randint(0, 256, (64,))
        loss = nn.functional.cross_entropy(model(x[idx]) * 4, y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    norms = {n: p.grad.norm().item() for n, p in model.named_parameters() if p.grad is not None}
    seen = sorted({n.split(".")[0] for n in guard.passed})
    print(f"stage {stage}: loss {loss.item():.3f}, guarded {seen}, "
          f"largest tensor gradient {max(norms.values()):.3f}")
