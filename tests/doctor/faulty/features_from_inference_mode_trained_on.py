# TH532
"""Extract features in inference mode, and train a probe on them, which PyTorch refuses."""

import torch
from torch import nn

torch.manual_seed(0)
backbone, probe = nn.Sequential(nn.Linear(4, 6), nn.ReLU()), nn.Linear(6, 1)
features = []
backbone[1].register_forward_hook(lambda module, args, out: features.append(out))  # <- TH532
with torch.inference_mode():
    for batch in torch.randn(3, 2, 4):
        backbone(batch)
for batch in features:
    probe(batch).pow(2).mean().backward()
result = probe.weight.grad
