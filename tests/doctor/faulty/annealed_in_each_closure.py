# TH425
"""Anneal a factor in each forward pass, although L-BFGS calls the closure many times in a step."""

import torch
from torch import nn

torch.manual_seed(0)


class Annealed(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)
        self.calls = 0
        self.register_forward_pre_hook(self.advance)  # <- TH425

    @staticmethod
    def advance(module, args):
        module.calls += 1

    def forward(self, x):
        return self.fc(x) / (1 + 0.1 * self.calls)


model = Annealed()
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)
x = torch.randn(8, 3)


def closure():
    optimizer.zero_grad()
    loss = (model(x) - 1).square().mean()
    loss.backward()
    return loss


for _ in range(3):
    optimizer.step(closure)
result = model.calls
