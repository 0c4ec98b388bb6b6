# TH236
"""Pack the saved tensors of a model that a thread trains."""

import threading

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(2, 1)


def train():
    model(torch.ones(1, 2)).pow(2).sum().backward()


with torch.autograd.graph.saved_tensors_hooks(lambda t: t.half(), lambda t: t.float()):  # <- TH236
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
result = model.weight.grad
