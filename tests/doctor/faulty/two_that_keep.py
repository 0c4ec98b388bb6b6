# TH502 TH503
"""Keep the outputs of one model, and weigh another's gradient by its own value: both hold graphs."""

import torch
from torch import nn

policy, value = nn.Linear(4, 4), nn.Linear(4, 1)
outputs = []
value.register_forward_hook(lambda m, args, out: outputs.append(out))  # <- TH503


def weigh(logits):
    logits.register_hook(lambda grad: grad * logits.detach().sigmoid())  # <- TH502
    return logits


for states in torch.randn(5, 3, 4):
    value(states).pow(2).sum().backward()
    weigh(policy(states)).pow(2).sum().backward()
result = [policy.weight.grad, value.weight.grad]
