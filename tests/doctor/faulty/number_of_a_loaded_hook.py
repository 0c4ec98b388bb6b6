# TH606
"""Load a whole model with its hook in a new process, and add a hook: the new one takes the old one's number."""

import io

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

calls = []


def count(module, args, output):
    calls.append(output.detach().sum())


def shift(module, args, output):
    return output + 1


model = nn.Linear(3, 1)
number = model.register_forward_hook(count).id
model(torch.ones(1, 3)).sum().backward()
file = io.BytesIO()
torch.save(model, file)
file.seek(0)
loaded = torch.load(file, weights_only=False)
later, RemovableHandle.next_id = RemovableHandle.next_id, number  # a new process begins to count anew
loaded.register_forward_hook(shift)  # <- TH606
RemovableHandle.next_id = later
loaded(torch.ones(1, 3)).sum().backward()
result = [loaded.weight.grad, torch.tensor(len(calls))]
