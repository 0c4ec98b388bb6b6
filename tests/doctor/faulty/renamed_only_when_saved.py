# TH237
"""Rename keys when the state dict is saved, and not when it is loaded."""

import torch
from torch import nn

torch.manual_seed(0)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.backbone(x))


def without_prefix(module, state, prefix, metadata):
    for key in [key for key in state if key.startswith("backbone.")]:
        state[key.removeprefix("backbone.")] = state.pop(key)


model = Classifier()
model.register_state_dict_post_hook(without_prefix)
saved = model.state_dict()
again = Classifier()
again.load_state_dict(saved, strict=False)  # <- TH237
result = again(torch.ones(2, 3))
