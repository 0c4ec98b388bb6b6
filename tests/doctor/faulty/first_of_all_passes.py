# TH552
"""Compare the features of two inputs. The list is never cleared, so both are those of the first input."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
kept = []
model[0].register_forward_hook(lambda module, args, output: kept.append(output.detach()))  # <- TH552


def features(x: torch.Tensor) -> torch.Tensor:
    model(x)
    return kept[0]


result = torch.equal(features(torch.ones(1, 2)), features(-torch.ones(1, 2)))
