# TH219
"""Gradients of each sample by vmap over grad, of a model that still has a backward hook from debugging."""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
model[0].register_full_backward_hook(lambda m, gi, go: None)  # <- TH219


def loss(params, x):
    return functional_call(model, params, (x.unsqueeze(0),)).square().sum()


params = {name: p.detach() for name, p in model.named_parameters()}
result = vmap(grad(loss), in_dims=(None, 0))(params, torch.randn(5, 3))
