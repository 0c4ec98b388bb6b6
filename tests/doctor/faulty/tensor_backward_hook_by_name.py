# TH106
"""After the load, put the hooks back on the parameters by name, with a function that tensors do not have."""

import tempfile

import torch
from torch import nn


def halve(grad):
    return grad * 0.5


model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
with tempfile.TemporaryDirectory() as folder:
    torch.save({"model": model.state_dict(), "hooked": ["0.weight", "2.weight"]}, f"{folder}/last.pt")
    checkpoint = torch.load(f"{folder}/last.pt")
model.load_state_dict(checkpoint["model"])
for name in checkpoint["hooked"]:
    model.get_parameter(name).register_backward_hook(halve)  # <- TH106
