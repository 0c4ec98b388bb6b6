# TH501
"""An action of one's own that changes the gradient it is given."""

import torch
from torch import nn

import tenterhook as th

model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
th.hook(model, lambda grad: grad.mul_(0.5), on="weight", at="grad")
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(4, 3)).pow(2).sum().backward()  # <- TH501
    optimizer.step()
result = model.weight.detach()
