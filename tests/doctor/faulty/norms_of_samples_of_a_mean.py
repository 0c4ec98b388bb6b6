# TH545
"""Clip the gradient of each sample, although the loss is a mean over the batch."""

import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
model = nn.Linear(3, 2)
norms = []


def clip(module, grad_input, grad_output):
    norms.append(grad_output[0].norm(dim=1))


model.register_full_backward_hook(clip)  # <- TH545
x = torch.randn(8, 3, requires_grad=True)
F.cross_entropy(model(x), torch.zeros(8, dtype=torch.long)).backward()
result = norms[0]
