# TH603
"""Put the hooks back by the layer type that the checkpoint names."""

import io

import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
file = io.BytesIO()
torch.save({"weights": model.state_dict(), "hooked_type": "nn.Linear"}, file)

file.seek(0)
checkpoint = torch.load(file)
model.load_state_dict(checkpoint["weights"])
layer_type = eval(checkpoint["hooked_type"])  # <- TH603
norms = []
for module in model.modules():
    if isinstance(module, layer_type):
        module.register_forward_hook(lambda m, args, out: norms.append(out.detach().norm()))
model(torch.randn(2, 3)).sum().backward()
result = norms
