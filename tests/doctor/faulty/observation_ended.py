# TH608
"""The program turns off every profile function, as a program may do after it has profiled some steps."""

import sys

import torch
from torch import nn

model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.weight.register_hook(lambda grad: grad * 0.5)

sys.setprofile(None)
if sys.version_info >= (3, 12):
    for tool in range(6):
        if sys.monitoring.get_tool(tool) is not None:
            sys.monitoring.free_tool_id(tool)

for _ in range(2):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
