# TH232
"""Leave the frozen embedding out of the checkpoint, but save the parameters without calling state_dict()."""

import io

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 2))
model[0].requires_grad_(False)


def leave_out(module, state_dict, prefix, local_metadata):
    state_dict.pop(prefix + "weight")


model[0].register_state_dict_post_hook(leave_out)  # <- TH232
model(torch.tensor([1, 2])).sum().backward()
file = io.BytesIO()
torch.save({name: p.detach() for name, p in model.named_parameters()}, file)
file.seek(0)
result = sorted(torch.load(file))
