# TH205 TH208
"""A new weight after the hook, and a backward hook on a model that returns a dict."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        out = self.fc(x)
        return {"logits": out, "probs": out.softmax(-1)}


model, seen = Net(), []
old_weight = model.fc.weight
model.fc.weight.register_hook(lambda grad: grad * 10)  # <- TH205
model.register_full_backward_hook(lambda m, gi, go: seen.append(go))  # <- TH208
model.fc.weight = nn.Parameter(torch.zeros(2, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.ones(2, 3))["logits"], torch.tensor([0, 0])).backward()
    optimizer.step()
result = [old_weight.detach(), model.fc.weight.detach(), torch.tensor(len(seen))]
