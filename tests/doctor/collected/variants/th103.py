"""Grad-CAM heat maps while a new classification head is trained on a pretrained backbone."""
import contextlib
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    classes: int = 4
    width: int = 8
    steps: int = 5
    lr: float = 0.05
    train_backbone: bool = False


class CamClassifier(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.parts = nn.ModuleDict({
            "backbone": nn.Sequential(
                nn.Conv2d(3, cfg.width, 3, padding=1), nn.ReLU(), nn.Conv2d(cfg.width, cfg.width, 3, padding=1)
            ),
            "head": nn.Linear(cfg.width, cfg.classes),
        })
        for p in self.parts["backbone"].parameters():
            p.requires_grad_(cfg.train_backbone)
        self.maps, self.map_grads = [], []

    def _keep_grad(self, grad):
        self.map_grads.append(grad.detach())

    def forward(self, x):
        fmap = self.parts["backbone"](x)
        self.maps.append(fmap.detach())
        with contextlib.suppress(RuntimeError):  # evaluation runs without gradients
            fmap.register_hook(self._keep_grad)
        return self.parts["head"](fmap.mean(dim=(2, 3)))

    def cams(self):
        for fmap, grad in zip(self.maps, self.map_grads):
            weights = grad.mean(dim=(2, 3), keepdim=True)
            yield F.relu((weights * fmap).sum(1))


def main():
    torch.manual_seed(0)
    cfg = Config()
    model = CamClassifier(cfg)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=cfg.lr)
    images, labels = torch.randn(16, 3, 8, 8), torch.randint(0, cfg.classes, (16,))
    for step in range(cfg.steps):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")
    cams = list(model.cams())
    print(f"forward passes: {len(model.maps)}, heat maps: {len(cams)}")


if __name__ == "__main__":
    main()
