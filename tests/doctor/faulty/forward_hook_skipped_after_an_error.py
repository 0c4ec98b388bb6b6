# TH235
"""Add noise to the weights before each call, and take it away afterwards. Batches of a wrong size are skipped."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(2, 1)


class Noise:
    def add(self, module, args):
        self.clean = module.weight.detach().clone()
        module.weight.data.add_(torch.randn(1, 2))

    def take_away(self, module, args, output):
        module.weight.data.copy_(self.clean)


noise = Noise()
model.register_forward_pre_hook(noise.add)
model.register_forward_hook(noise.take_away)  # <- TH235
for size in (2, 2, 3, 2):
    try:
        model(torch.ones(1, size))
    except RuntimeError:
        continue
result = model.weight
