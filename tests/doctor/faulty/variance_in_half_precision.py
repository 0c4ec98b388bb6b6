# TH538
"""Watch the variance of the activations of a model in half precision."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2)).half().eval()
spread = {}


def watch(module, args, output):
    spread["first"] = (output - output.mean()).square().sum().item()


model[0].register_forward_hook(watch)  # <- TH538
with torch.no_grad():
    out = model(torch.full((32, 16), 300.0, dtype=torch.float16))
result = [out, torch.tensor(spread["first"])]
