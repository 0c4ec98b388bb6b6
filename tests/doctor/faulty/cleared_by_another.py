# TH605
"""A helper clears all forward hooks of the model, also the one that logs."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
means = []
model[1].register_forward_hook(lambda m, args, out: means.append(out.detach().mean()))  # <- TH605


def remove_all_hooks(root):
    for module in root.modules():
        module._forward_hooks.clear()


for step, batch in enumerate(torch.randn(4, 2, 3)):
    if step == 2:
        remove_all_hooks(model)
    model(batch).sum().backward()
result = means
