# TH312
"""Rename the keys of an old checkpoint in a new dict and return it; PyTorch loads the old dict."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 2)
old = {"kernel": torch.ones(2, 3), "offset": torch.zeros(2)}
names = {"kernel": "weight", "offset": "bias"}


def rename(module, state_dict, prefix, *args):
    return {prefix + names[key.removeprefix(prefix)]: value for key, value in state_dict.items()}


model.register_load_state_dict_pre_hook(rename)  # <- TH312
missing = model.load_state_dict(old, strict=False)
result = [sorted(missing.missing_keys), model.weight.detach()]
