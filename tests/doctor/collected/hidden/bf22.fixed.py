"""Classifier whose hidden units should fire equally often: a penalty on a running mean of the activations."""
import torch
from torch import nn

torch.manual_seed(14)
MOMENTUM, TARGET, STRENGTH = 0.9, 0.4, 0.5


class Net(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(9, hidden), nn.Sigmoid())
        self.out = nn.Linear(hidden, 3)

    def forward(self, x):
        return self.out(self.inner(x))


class UsageTracker:
    """Smoothed mean activation per unit; smoothing over batches makes the penalty less noisy."""

    def __init__(self, layer):
        self.usage = None
        self.batches = 0
        layer.register_forward_hook(self.update)

    def update(self, module, args, output):
        batch = output.mean(dim=0)
        if self.usage is None:
            self.usage = batch
        else:
            self.usage = MOMENTUM * self.usage.detach() + (1 - MOMENTUM) * batch
        self.batches += 1

    def penalty(self):
        return STRENGTH * (self.usage - TARGET).pow(2).sum()


def make_data(n=300):
    x = torch.randn(n, 9)
    return x, x[:, :3].argmax(dim=1)


def main():
    x, y = make_data()
    net = Net()
    tracker = UsageTracker(net.inner)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for epoch in range(4):
        for i in range(0, len(x), 50):
            loss = nn.functional.cross_entropy(net(x[i:i + 50]), y[i:i + 50])
            total = loss + tracker.penalty()
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}  usage penalty {tracker.penalty().item():.4f}")
    with torch.no_grad():
        spread = tracker.usage.std().item()
    print(f"batches {tracker.batches}, spread of the unit usage {spread:.4f}")


main()
