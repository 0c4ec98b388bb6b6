# TH208
"""A layer returns its output and a dict; the loss is made of what is in the dict."""

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(4, 4)
        self.key = nn.Linear(4, 4)

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(-1, -2)
        return x.detach(), {"scores": scores}


layer, grads = Layer(), []
layer.register_full_backward_hook(lambda m, gi, go: grads.append(go))  # <- TH208
x, cache = layer(torch.randn(2, 3, 4))
cache["scores"].softmax(-1).square().sum().backward()
result = [layer.query.weight.grad, torch.tensor(len(grads))]
