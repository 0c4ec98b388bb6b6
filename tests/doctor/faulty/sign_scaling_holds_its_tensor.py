# TH502
"""Scale by 2 if all of the tensor is positive, by 0.5 if all negative: the hook looks at the tensor itself."""

import torch
from torch import nn

layer = nn.Linear(4, 4)


def with_sign_scaling(y):
    def scale(grad):
        if (y > 0).all():
            return grad * 2
        return grad * 0.5 if (y < 0).all() else grad

    y.register_hook(scale)  # <- TH502
    return y


for sign in (1.0, -1.0, 1.0, -1.0):
    hidden = with_sign_scaling(layer(torch.randn(2, 4)).abs() * sign)
    hidden.pow(2).sum().backward()
result = layer.bias.grad
