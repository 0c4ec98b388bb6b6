# TH220
"""An inner step with weights of its own by functional_call; the hook is on the model's parameter."""

import torch
from torch import nn
from torch.func import functional_call

model = nn.Linear(3, 1)
model.weight.register_hook(lambda grad: grad * 0)  # <- TH220
fast = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
for _ in range(2):
    loss = functional_call(model, fast, (torch.ones(4, 3),)).square().mean()
    loss.backward()
    with torch.no_grad():
        for p in fast.values():
            p -= 0.1 * p.grad
            p.grad = None
result = fast
