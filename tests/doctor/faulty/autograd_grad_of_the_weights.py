# TH210
"""A MAML-like inner step by autograd.grad over the weights, with a module backward hook that is to see it."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
seen = []
net[0].register_full_backward_hook(lambda m, gi, go: seen.append(go[0].norm()))  # <- TH210
x = torch.randn(8, 3, requires_grad=True)
loss = net(x).square().mean()
weights = list(net.parameters())
fast = [w - 0.1 * g for w, g in zip(weights, torch.autograd.grad(loss, weights))]
result = [fast[0].detach(), *seen]
