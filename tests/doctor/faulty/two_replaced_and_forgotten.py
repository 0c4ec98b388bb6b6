# TH205 TH301
"""Load weights with assign=True after the hooks were put on one layer; another's hook returns nothing."""

import torch
from torch import nn

body, head = nn.Linear(4, 6), nn.Linear(6, 1)


def clip(grad):
    grad.clamp(-0.1, 0.1)


body.weight.register_hook(lambda grad: grad * 0.1)  # <- TH205
head.weight.register_hook(clip)  # <- TH301
saved = {key: value.clone() for key, value in body.state_dict().items()}
body.load_state_dict(saved, assign=True)
for batch in torch.randn(2, 8, 4):
    head(body(batch).relu()).pow(2).mean().backward()
result = [body.weight.grad, head.weight.grad]
