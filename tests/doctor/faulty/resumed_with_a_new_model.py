# TH206
"""Resume from a checkpoint into a new model; the hook is on the old one, which is gone."""

import tempfile

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 8)
        self.fc2 = nn.Linear(8, 1)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


model = Net()
model.fc1.weight.register_hook(lambda grad: grad.clamp(-0.001, 0.001))  # <- TH206
with tempfile.TemporaryDirectory() as folder:
    torch.save(model.state_dict(), f"{folder}/last.pt")
    model = Net()
    model.load_state_dict(torch.load(f"{folder}/last.pt"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
result = model.fc1.weight.grad
