"""Intermediate features of a U-shaped network, collected for a perceptual loss."""
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class Features:
    maps: dict = field(default_factory=dict)
    handles: list = field(default_factory=list)

    def attach(self, network, stages):
        for stage in stages:
            def save(module, args, output):
                self.maps[stage] = output

            self.handles.append(network.stages[stage].register_forward_hook(save))
        return self


class Pyramid(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.stages = nn.ModuleDict()
        channels = 1
        for name in ("low", "middle", "high"):
            self.stages[name] = nn.Sequential(
                nn.Conv2d(channels, width, 3, stride=2, padding=1), nn.ReLU()
            )
            channels, width = width, width * 2

    def forward(self, x):
        for stage in self.stages.values():
            x = stage(x)
        return x


class PerceptualLoss(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.network = Pyramid().requires_grad_(False).eval()
        self.weights = weights
        self.features = Features().attach(self.network, list(weights))

    def _extract(self, image):
        self.features.maps.clear()
        self.network(image)
        return dict(self.features.maps)

    def forward(self, image, target):
        a, b = self._extract(image), self._extract(target)
        terms = {name: nn.functional.l1_loss(a[name], b[name]) for name in a}
        return sum(self.weights[name] * term for name, term in terms.items()), terms


if __name__ == "__main__":
    torch.manual_seed(0)
    criterion = PerceptualLoss({"low": 1.0, "middle": 0.5, "high": 0.25})
    image = torch.rand(2, 1, 16, 16, requires_grad=True)
    optimizer = torch.optim.Adam([image], lr=0.05)
    target = torch.rand(2, 1, 16, 16)
    for step in range(5):
        loss, terms = criterion(image, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f} terms", {k: round(v.item(), 4) for k, v in terms.items()})
