# TH220
"""An ensemble that runs one skeleton with the weights of each member, and hooks on the skeleton."""

import torch
from torch import nn
from torch.func import functional_call


def build():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))


skeleton, norms = build(), []
for p in skeleton.parameters():
    p.register_post_accumulate_grad_hook(lambda p: norms.append(p.grad.norm()))  # <- TH220
members = [{name: p.detach().requires_grad_() for name, p in build().named_parameters()} for _ in range(3)]
x = torch.randn(8, 4)
for member in members:
    functional_call(skeleton, member, (x,)).square().mean().backward()
result = [*(m["0.weight"].grad for m in members), *norms]
