"""Scale estimation with a likelihood that can blow up; batches with a broken gradient are skipped by the hooks."""
import torch
from torch import nn

torch.manual_seed(43)


class ScaleNet(nn.Module):
    """Predicts the distance of two measured points and its own uncertainty."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(3, 8)
        self.log_scale = nn.Parameter(torch.zeros(()))

    def forward(self, a, b):
        diff = self.embed(a) - self.embed(b)
        return diff.pow(2).sum(dim=1).sqrt()


class NanGuard:
    """Parameters ignore a gradient that is not finite."""

    def __init__(self, model):
        self.refused = 0
        for p in model.parameters():
            p.register_hook(self.check)

    def check(self, grad):
        if not torch.isfinite(grad).all():
            self.refused += 1
            return None
        return grad


def batch(step, n=32):
    a = torch.randn(n, 3)
    b = a + torch.randn(n, 3)
    if step == 12:
        b[5] = a[5]                 # the sensor reported the same point twice
    return a, b, (a - b).norm(dim=1)


model = ScaleNet()
guard = NanGuard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
losses = []

for step in range(40):
    a, b, y = batch(step)
    pred = model(a, b)
    scale = model.log_scale.exp()
    loss = ((pred - y).abs() / scale).mean() + model.log_scale
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 10 == 9:
        print(f"step {step + 1}: loss {loss.item():.3f}  scale {model.log_scale.exp().item():.3f}")

finite = all(torch.isfinite(p).all().item() for p in model.parameters())
print(f"gradients refused: {'a few' if guard.refused < 5 else 'many'}")
print(f"weights finite at the end: {finite}")
print(f"final loss: {losses[-1]:.3f}")
