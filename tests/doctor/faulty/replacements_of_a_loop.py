# TH551
"""Replace each gradient by a computed one. The first hook that fires gets the gradient of another parameter."""

import torch
from torch import nn


def replace_gradients(model: nn.Module, gradients: dict[str, torch.Tensor]) -> None:
    for name, parameter in model.named_parameters():

        def replace(grad: torch.Tensor) -> torch.Tensor:
            return gradients[name]

        parameter.register_hook(replace)  # <- TH551


model = nn.Linear(3, 2)
replace_gradients(model, {name: torch.ones_like(one) for name, one in model.named_parameters()})
model(torch.ones(4, 3)).sum().backward()
