# TH548
"""Assign a new dict after the hooks have been registered with the old one."""

import torch
from torch import nn

torch.manual_seed(0)


class Recorder:
    def __init__(self, model):
        self.stats = {}
        stats = self.stats

        def record(module, args, output):
            stats["mean"] = stats.get("mean", 0.0) + float(output.mean())

        model.register_forward_hook(record)  # <- TH548

    def clear(self):
        self.stats = {}


model = nn.Linear(3, 2)
recorder = Recorder(model)
for _ in range(3):
    model(torch.ones(2, 3))
    recorder.clear()
model(torch.ones(2, 3))
result = recorder.stats
