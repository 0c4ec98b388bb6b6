# TH301
"""Scale the gradient down and print what comes out; the print looks right."""

import torch

w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)


def scale_down(grad):
    grad = grad * 0.1
    print("scaled gradient:", grad)


w.register_hook(scale_down)  # <- TH301
loss = (w**2).sum()
loss.backward()
result = w.grad
