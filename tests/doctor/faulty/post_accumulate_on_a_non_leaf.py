# TH105
"""Wait until the gradient of the features is complete, with a hook that only leaves can have."""

import torch
from torch import nn

encoder, head = nn.Linear(4, 8), nn.Linear(8, 1)
seen = []
features = encoder(torch.randn(2, 4)).relu()
features.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.norm()))  # <- TH105
head(features).sum().backward()
result = seen
