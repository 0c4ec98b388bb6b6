# TH542
"""Subtract the mean of the batch in a hook, although vmap calls the model with one sample."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 2)
model.register_forward_hook(lambda module, args, output: output - output.mean(0))  # <- TH542


def run(sample):
    return model(sample.unsqueeze(0)).squeeze(0)


result = torch.func.vmap(run)(torch.randn(4, 3))
