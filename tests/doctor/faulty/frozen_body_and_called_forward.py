# TH203 TH207
"""Hook the body's weight, freeze it, and call the head by .forward(): neither hook fires."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head.forward(self.body(x).relu())


model, logits = Net(), []
model.body.weight.register_hook(lambda grad: grad * 0.1)  # <- TH203
model.head.register_forward_hook(lambda m, args, out: logits.append(out.detach()))  # <- TH207
model.body.requires_grad_(False)
for _ in range(2):
    nn.functional.cross_entropy(model(torch.randn(4, 4)), torch.tensor([0, 1, 0, 1])).backward()
result = [model.head.weight.grad, *logits]
