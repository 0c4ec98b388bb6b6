"""Measure where a graph edit (GELU -> quick GELU) changes the features of a network."""
import copy

import torch
import torch.fx as fx
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(13)


class Mixer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.dw = nn.Conv2d(c, c, 3, padding=1, groups=c)
        self.pw = nn.Conv2d(c, c, 1)

    def forward(self, x):
        return x + F.gelu(self.pw(F.gelu(self.dw(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 10, 4, 4)
        self.stage = nn.Sequential(Mixer(10), Mixer(10), Mixer(10))
        self.head = nn.Linear(10, 7)

    def forward(self, x):
        return self.head(self.stage(self.stem(x)).mean((2, 3)))


def quick_gelu(x):
    return x * torch.sigmoid(1.702 * x)


def swap_gelu(model):
    gm = fx.symbolic_trace(copy.deepcopy(model))
    for node in gm.graph.nodes:
        if node.target is F.gelu:
            node.target = quick_gelu
    gm.recompile()
    return gm


class FeatureStore(dict):
    def attach(self, model):
        for name, m in model.named_modules():
            if isinstance(m, (nn.Conv2d, nn.Linear)):
                m.register_forward_hook(self.saver(name))
        return self

    def saver(self, name):
        def hook(module, args, out):
            self[name] = out.detach().clone()

        return hook


model = Net().eval()
edited = swap_gelu(model)

# one store per network
before = FeatureStore().attach(model)
after = FeatureStore().attach(edited)

images = torch.randn(8, 3, 32, 32)
with torch.no_grad():
    out_a = model(images)
    out_b = edited(images)

worst = 0.0
for name in before:
    drift = (before[name] - after[name]).abs().max().item()
    worst = max(worst, drift)
    print(f"{name:12s} drift {drift:.6f}")
print(f"largest layer drift {worst:.6f}")
print(f"logit drift {(out_a - out_b).abs().max().item():.6f}")
