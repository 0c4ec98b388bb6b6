# TH110
"""Give restore the model's state_dict, where the rig's was meant."""

import tempfile

import torch
from torch import nn

import tenterhook as th

model = nn.Linear(3, 1)
rig = th.attach(model, th.Hook("signs", on="weight", at="grad", do=th.clip_value(1.0)))
model(torch.ones(2, 3)).sum().backward()
with tempfile.TemporaryDirectory() as folder:
    torch.save({"model": model.state_dict(), "hooks": rig.state_dict()}, f"{folder}/last.pt")
    checkpoint = torch.load(f"{folder}/last.pt")
fresh = nn.Linear(3, 1)
fresh.load_state_dict(checkpoint["model"])
th.restore(fresh, checkpoint["model"])  # <- TH110
