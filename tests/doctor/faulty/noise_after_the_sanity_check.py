# TH224
"""A sanity check compiles the model; noise that is added after it comes in when the model is put into eval and back."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.drop = nn.Dropout(0.0)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.drop(self.body(x).relu()))


def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        (fast(torch.ones(8, 4)) - 1).square().mean().backward()
        optimizer.step()


def shift(module, args):
    return (args[0] + 0.5,)


model = Net()
fast = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train(1)
model.head.register_forward_pre_hook(shift)  # <- TH224
train(2)
model.eval()
with torch.no_grad():
    score = fast(torch.ones(8, 4)).mean()
result = [score, [p.detach() for p in model.parameters()]]
