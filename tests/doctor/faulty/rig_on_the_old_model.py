# TH206
"""Attach the rig, and then train the model that a reload made."""

import torch
from torch import nn

import tenterhook as th


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
clip = th.Hook("clip", on="fc.weight", at="grad", do=th.clip_value(0.01))
rig = th.attach(model, clip, optimizer=optimizer)  # <- TH206
loaded = Net()
loaded.load_state_dict(model.state_dict())
for _ in range(3):
    optimizer.zero_grad()
    loaded(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()
result = [model.fc.weight.detach(), loaded.fc.weight.grad]
