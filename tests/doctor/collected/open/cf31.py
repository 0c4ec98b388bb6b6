"""Evaluate an ensemble of small CNNs at once with vmap and compare their first-layer features."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, stack_module_state, vmap

torch.manual_seed(30)


class Member(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, padding=1)
        self.conv2 = nn.Conv2d(6, 12, 3, stride=2, padding=1)
        self.fc = nn.Linear(12, classes)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        return self.fc(x.mean((2, 3)))


features = {}


def keep(name):
    def hook(module, args, out):
        features[name] = out.detach()

    return hook


members = [Member().eval() for _ in range(5)]
params, buffers = stack_module_state(members)
base = copy.deepcopy(members[0]).to("meta")
base.conv1.register_forward_hook(keep("conv1"))
base.conv2.register_forward_hook(keep("conv2"))


def single(p, b, x):
    return functional_call(base, (p, b), (x,))


images = torch.randn(8, 1, 10, 10)
with torch.no_grad():
    logits = vmap(single, in_dims=(0, 0, None))(params, buffers, images)

votes = logits.argmax(-1)
print("logits", tuple(logits.shape))
print("agreement of the members", f"{(votes == votes.mode(0).values).float().mean().item():.3f}")
print("captured", sorted(features))

# features are stacked over the members like the logits
for name, maps in features.items():
    energy = maps.pow(2).mean()
    print(f"{name}: shape {tuple(maps.shape)} energy {energy.item():.4f}")
