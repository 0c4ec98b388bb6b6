# TH202
"""Reverse the gradient of the features for the domain head, and then hand it the other variable."""

import torch
from torch import nn

features, domain = nn.Linear(4, 4), nn.Linear(4, 1)
h = features(torch.randn(8, 4)).relu()
reversed_h = h * 1.0
reversed_h.register_hook(lambda grad: -grad)  # <- TH202
logits = domain(h)
nn.functional.binary_cross_entropy_with_logits(logits, torch.ones(8, 1)).backward()
result = features.weight.grad
