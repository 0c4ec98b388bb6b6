# TH409
"""Each epoch puts its loggers on; the handles are collected and none is removed."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
handles, counts = [], []


def start_epoch(store):
    def log(module, grad_input, grad_output):
        store.append(grad_output[0].norm())

    handles.append(model[2].register_full_backward_hook(log))  # <- TH409


for epoch in range(4):
    store = []
    start_epoch(store)
    for batch in torch.randn(2, 5, 3):
        model(batch).sum().backward()
    counts.append(torch.stack(store))
result = counts
