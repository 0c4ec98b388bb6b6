"""Object-detection style training: damp the gradient that flows from the heads into the feature pyramid."""
import torch
import torch.nn.functional as F
from torch import nn


class Backbone(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stages = nn.ModuleList([
            nn.Conv2d(3, width, 3, stride=2, padding=1),
            nn.Conv2d(width, width, 3, stride=2, padding=1),
        ])

    def forward(self, x):
        maps = []
        for stage in self.stages:
            x = F.relu(stage(x))
            maps.append(x)
        return maps


class Pyramid(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.backbone = Backbone(width)
        self.lateral = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(2))

    def forward(self, x):
        fine, coarse = (conv(m) for conv, m in zip(self.lateral, self.backbone(x)))
        fine = fine + F.interpolate(coarse, scale_factor=2.0)
        return [fine, coarse], (2, 4)


class Detector(nn.Module):
    def __init__(self, damping=1.0):
        super().__init__()
        self.damping, self.calls = damping, 0
        self.pyramid = Pyramid()
        self.heads = nn.ModuleList(nn.Conv2d(8, 5, 1) for _ in range(2))
        self.pyramid.register_full_backward_pre_hook(self.damp)

    def damp(self, module, grad_output):
        self.calls += 1
        return tuple(g if g is None else g * self.damping for g in grad_output)

    def forward(self, x):
        maps, strides = self.pyramid(x)
        return [head(m) / stride for head, m, stride in zip(self.heads, maps, strides)]


def train_once(damping):
    torch.manual_seed(0)
    model = Detector(damping)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        loss = sum(out.pow(2).mean() for out in model(torch.randn(2, 3, 16, 16)))
        loss.backward()
        optimizer.step()
    norm = sum(p.grad.norm().item() for p in model.pyramid.parameters())
    print(f"damping {damping}: hook calls {model.calls}, pyramid gradient {norm:.5f}")


if __name__ == "__main__":
    for value in (1.0, 0.1):
        train_once(value)
