"""Train a small image classifier whose stem features are whitened with running statistics."""
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    width: int = 12
    classes: int = 4
    steps: int = 40
    lr: float = 0.05


class FeatureWhitener:
    """Keeps running moments of a feature map and standardises it."""

    def __init__(self, width, momentum=0.1):
        self.mean = torch.zeros(width)
        self.var = torch.ones(width)
        self.momentum = momentum

    @torch.no_grad()
    def __call__(self, module, inputs, output):
        batch_mean = output.mean(dim=(0, 2, 3))
        batch_var = output.var(dim=(0, 2, 3))
        self.mean.lerp_(batch_mean, self.momentum)
        self.var.lerp_(batch_var, self.momentum)
        shape = (1, -1, 1, 1)
        return (output - self.mean.view(shape)) / (self.var.view(shape) + 1e-5).sqrt()


class Net(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.stem = nn.Conv2d(3, cfg.width, 3, padding=1)
        self.stages = nn.ModuleList(nn.Conv2d(cfg.width, cfg.width, 3, padding=1) for _ in range(2))
        self.head = nn.Linear(cfg.width, cfg.classes)
        self.whitener = FeatureWhitener(cfg.width)
        self.stem.register_forward_hook(self.whitener)

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = x + torch.relu(stage(x))
        return self.head(x.mean(dim=(2, 3)))


def main():
    torch.manual_seed(0)
    cfg = Config()
    net = Net(cfg)
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    optimizer = torch.optim.SGD(net.parameters(), lr=cfg.lr, momentum=0.9)
    for step in range(cfg.steps):
        labels = torch.randint(cfg.classes, (16,))
        images = torch.randn(16, 3, 8, 8) + labels.view(-1, 1, 1, 1) * 0.3
        loss = nn.functional.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"final loss {loss.item():.3f}")
    for name, p in net.named_parameters():
        print(f"{name:18s} moved {(p - before[name]).norm().item():.4f}")


if __name__ == "__main__":
    main()
