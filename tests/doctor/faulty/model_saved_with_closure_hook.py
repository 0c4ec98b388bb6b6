# TH604
"""Save the whole model; a hook on it is a local function."""

import io

import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))


def add_logger(module, log):
    def log_output(m, args, out):
        log.append(out.detach().mean())

    return module.register_forward_hook(log_output)  # <- TH604


log = []
add_logger(model[1], log)
model(torch.randn(2, 3)).sum().backward()
torch.save(model, io.BytesIO())  # <- TH604
result = log
