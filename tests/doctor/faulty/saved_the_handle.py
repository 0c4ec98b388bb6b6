# TH107
"""Save the handle of the hook with the checkpoint, so that the hook is there after the load."""

import tempfile

import torch
from torch import nn


def halve(grad):
    return grad * 0.5


model = nn.Linear(3, 1)
handle = model.weight.register_hook(halve)
with tempfile.TemporaryDirectory() as folder:
    torch.save({"model": model.state_dict(), "handle": handle}, f"{folder}/last.pt")
    checkpoint = torch.load(f"{folder}/last.pt", weights_only=False)  # <- TH107
fresh = nn.Linear(3, 1)
fresh.load_state_dict(checkpoint["model"])
handle = checkpoint["handle"]
fresh(torch.ones(2, 3)).sum().backward()
result = fresh.weight.grad
