# TH528
"""Rename the keys of an old checkpoint in a hook of a layer that is inside a model."""

import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.register_load_state_dict_pre_hook(rename)  # <- TH528

    def forward(self, x):
        return x / x.norm(dim=-1, keepdim=True) * self.weight


def rename(module, state_dict, prefix, local_metadata, strict, missing, unexpected, errors):
    if "gamma" in state_dict:
        state_dict["weight"] = state_dict.pop("gamma")


model = nn.Sequential(nn.Linear(3, 4), Norm(4))
old = {"0.weight": torch.zeros(4, 3), "0.bias": torch.zeros(4), "1.gamma": torch.full((4,), 3.0)}
model.load_state_dict(old, strict=False)
result = model[1].weight.detach()
