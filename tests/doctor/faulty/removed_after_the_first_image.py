# TH430
"""Compare the features of two inputs. The hook is removed after the first one, so both are those of the first input."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())


class Features:
    def __init__(self) -> None:
        self.handle = model[0].register_forward_hook(self.keep)  # <- TH430

    def keep(self, module: nn.Module, args: object, output: torch.Tensor) -> None:
        self.value = output.detach()

    def of(self, x: torch.Tensor) -> torch.Tensor:
        model(x)
        self.handle.remove()
        return self.value


features = Features()
result = torch.equal(features.of(torch.ones(1, 2)), features.of(-torch.ones(1, 2)))
