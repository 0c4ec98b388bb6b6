"""MAML-style inner loop in which the first filters of the stem stay fixed."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad

torch.manual_seed(19)


class ConvNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.fc = nn.Linear(8, classes)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.fc(x.mean((2, 3)))


def keep_filters(param, k):
    """No gradient for the first k output filters."""
    mask = torch.ones_like(param)
    mask[:k] = 0
    param.register_hook(lambda g: g * mask)
    return mask


def task():
    y = torch.arange(3).repeat(4)
    centre = torch.randn(3, 1, 1, 1)
    x = 0.3 * torch.randn(12, 1, 10, 10) + centre[y]
    return x, y


model = ConvNet()
# the hand-designed edge filters must survive the adaptation
with torch.no_grad():
    model.conv1.weight[:4] = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]])
fixed = {name: keep_filters(p, 4) for name, p in model.named_parameters() if name.startswith("conv1")}


def loss_fn(params, x, y):
    return F.cross_entropy(functional_call(model, params, (x,)), y)


def adapt(x, y, steps=5, lr=0.4):
    params = {k: v for k, v in model.named_parameters()}
    for _ in range(steps):
        grads = grad(loss_fn)(params, x, y)
        params = {k: p - lr * grads[k] for k, p in params.items()}
    return params


for t in range(3):
    x, y = task()
    fast = adapt(x, y)
    with torch.no_grad():
        before = F.cross_entropy(model(x), y).item()
        after = loss_fn(fast, x, y).item()
    moved = (fast["conv1.weight"] - model.conv1.weight)[:4].abs().max().item()
    free = (fast["conv1.weight"] - model.conv1.weight)[4:].abs().max().item()
    print(f"task {t}: loss {before:.3f} -> {after:.3f}, edge filters moved {moved:.5f}, others {free:.5f}")
print("masked parameters:", sorted(fixed))
