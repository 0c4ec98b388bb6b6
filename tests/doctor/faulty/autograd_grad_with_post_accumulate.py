# TH210
"""Keep running norms by post-accumulate hooks, in a loop that takes its gradients by autograd.grad."""

import torch
from torch import nn

model = nn.Linear(4, 1)
norms = []
for p in model.parameters():
    p.register_post_accumulate_grad_hook(lambda p: norms.append(p.grad.norm()))  # <- TH210
for _ in range(3):
    loss = model(torch.randn(8, 4)).square().mean()
    grads = torch.autograd.grad(loss, list(model.parameters()))
    with torch.no_grad():
        for p, g in zip(model.parameters(), grads):
            p -= 0.1 * g
result = [model.weight.detach(), *norms]
