"""Validation-only feature drift and channel ablation, switched on and off around the epochs."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(8)


class Net(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 2, 1)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, 2, 1)
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(8, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.conv2(x)).mean((2, 3))
        return self.fc(self.drop(x))


class ValidationFeatures:
    """Only evaluation batches count; training batches pass through unseen."""

    def __init__(self, layer):
        self.sum, self.n = 0.0, 0
        layer.register_forward_hook(self.hook)

    def hook(self, module, args, out):
        if module.training:
            return
        self.sum, self.n = self.sum + out.mean((0, 2, 3)), self.n + 1

    def take(self):
        mean, self.sum, self.n = self.sum / self.n, 0.0, 0
        return mean


def batch(n=16):
    y = torch.randint(0, 3, (n,))
    x = torch.randn(n, 1, 12, 12)
    for i, c in enumerate(y):
        x[i, :, 4 * c:4 * c + 4] += 1.5
    return x, y


def without(channel):
    def hook(module, args, out):
        out = out.clone()
        out[:, channel] = 0
        return out

    return hook


model = Net()
watch = ValidationFeatures(model.conv2)
opt = torch.optim.Adam(model.parameters(), lr=0.02)
last = None
for epoch in range(3):
    model.train()
    for _ in range(15):
        x, y = batch()
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    assert watch.n == 0
    model.eval()
    with torch.no_grad():
        for _ in range(4):
            model(batch()[0])
    mean = watch.take()
    print(f"epoch {epoch} loss {loss.item():.3f} drift", "-" if last is None else f"{(mean - last).norm().item():.4f}")
    last = mean

x, y = batch(64)
with torch.no_grad():
    base = F.cross_entropy(model(x), y).item()
    for ch in range(3):
        with model.bn1.register_forward_hook(without(ch)):  # gone again after the block
            print(f"without channel {ch}: loss change {F.cross_entropy(model(x), y).item() - base:+.4f}")
    assert abs(F.cross_entropy(model(x), y).item() - base) < 1e-6
