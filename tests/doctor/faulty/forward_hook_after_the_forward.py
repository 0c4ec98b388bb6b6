# TH201
"""Take the features of a layer, with a hook that is put on when the features have gone by."""

import torch
from torch import nn

encoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
features = []
logits = encoder(torch.randn(4, 4))
encoder[1].register_forward_hook(lambda m, args, out: features.append(out.detach()))  # <- TH201
nn.functional.cross_entropy(logits, torch.tensor([0, 1, 1, 0])).backward()
result = features
