"""Segmentation training with a log of the gradient that reaches the backbone from both heads."""
from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(25)


class Backbone(nn.Module):
    """Returns named feature maps, like torchvision's IntermediateLayerGetter."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU())
        self.layer3 = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU())
        self.layer4 = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 2, dilation=2), nn.ReLU())

    def forward(self, x):
        aux = self.layer3(self.conv1(x))
        return OrderedDict(out=self.layer4(aux), aux=aux)


class Segmenter(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.backbone = Backbone()
        self.head = nn.Conv2d(16, classes, 1)
        self.aux_head = nn.Conv2d(16, classes, 1)

    def forward(self, x):
        f = self.backbone(x)
        size = x.shape[-2:]
        return {
            "out": F.interpolate(self.head(f["out"]), size, mode="bilinear"),
            "aux": F.interpolate(self.aux_head(f["aux"]), size, mode="bilinear"),
        }


class GradientMeter:
    def __init__(self):
        self.history = {}

    def watch(self, name, module):
        self.history[name] = []

        def hook(module, grad_input, grad_output):
            norm = sum(g.norm().item() for g in grad_output if g is not None)
            self.history[name].append(norm)

        module.register_full_backward_hook(hook)


def batch(n=4):
    y = torch.zeros(n, 16, 16, dtype=torch.long)
    y[:, 4:12, 4:12] = torch.randint(1, 3, (n, 1, 1))
    return torch.randn(n, 3, 16, 16) + y[:, None], y


model = Segmenter()
meter = GradientMeter()
meter.watch("backbone", model.backbone)
meter.watch("head", model.head)
meter.watch("aux_head", model.aux_head)

opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    x, y = batch()
    pred = model(x)
    loss = F.cross_entropy(pred["out"], y) + 0.4 * F.cross_entropy(pred["aux"], y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.3f}")
for name, values in meter.history.items():
    mean = sum(values) / max(len(values), 1)
    print(f"{name:9s} steps {len(values)} mean gradient norm {mean:.5f}")
