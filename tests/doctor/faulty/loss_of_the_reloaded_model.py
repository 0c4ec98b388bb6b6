# TH206
"""Two model objects after a reload: the hooked one has the optimizer, the other one makes the loss."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


model = Net()
seen = []
model.fc.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].sum()))  # <- TH206
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
best_model = Net()
best_model.load_state_dict(model.state_dict())
for _ in range(3):
    optimizer.zero_grad()
    loss = best_model(torch.ones(2, 3)).square().mean()
    loss.backward()
    optimizer.step()
result = [model.fc.weight.detach(), *seen]
