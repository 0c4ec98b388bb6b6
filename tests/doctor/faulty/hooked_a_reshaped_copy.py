# TH202
"""Mask the gradient of the first head's queries, on a view that the attention does not use."""

import torch

batch, heads, width = 2, 4, 3
q = torch.randn(batch, 5, heads * width, requires_grad=True)
k = torch.randn(batch, 5, heads * width)
split = q.view(batch, 5, heads, width)
first = split[:, :, 0]
first.register_hook(torch.zeros_like)  # <- TH202
scores = torch.einsum("bqhd,bkhd->bhqk", split, k.view(batch, 5, heads, width))
scores.softmax(-1).square().sum().backward()
result = q.grad
