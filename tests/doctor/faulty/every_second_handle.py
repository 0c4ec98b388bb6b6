# TH420
"""Round the outputs of all layers in one pass only."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(4)))
handles = [layer.register_forward_hook(lambda module, args, output: output.round()) for layer in model]  # <- TH420
model(torch.ones(1, 2))
for handle in handles:
    handle.remove()
    handles.remove(handle)
out = model(torch.ones(1, 2))
out.sum().backward()
result = out
