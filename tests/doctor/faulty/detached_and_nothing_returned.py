# TH202 TH301
"""Scale the code, which is hooked on a detached copy; clamp the weights, and forget the return."""

import torch
from torch import nn


def clamp(grad):
    grad = grad.clamp(-0.01, 0.01)


encoder, decoder = nn.Linear(4, 2), nn.Linear(2, 4)
decoder.weight.register_hook(clamp)  # <- TH301
x = torch.randn(8, 4)
code = encoder(x)
copied = code.detach().requires_grad_()
copied.register_hook(lambda grad: grad * 0.5)  # <- TH202
(decoder(code) - x).square().mean().backward()
result = [encoder.weight.grad, decoder.weight.grad]
