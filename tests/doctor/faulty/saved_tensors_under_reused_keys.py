# TH537
"""Move saved tensors into a dict with two slots, which the third tensor uses again."""

import itertools

import torch

torch.manual_seed(0)
numbers = itertools.cycle([0, 1])
offloaded = {}


def pack(tensor):
    key = f"slot {next(numbers)}"
    offloaded[key] = tensor.detach().clone()
    return key


def unpack(key):
    return offloaded[key]


x = torch.randn(4, requires_grad=True)
with torch.autograd.graph.saved_tensors_hooks(pack, unpack):  # <- TH537
    y = (x.exp() * x.sin()).sum()
y.backward()
result = x.grad
