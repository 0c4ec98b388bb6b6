# TH524
"""Count the tokens of each batch in a hook, while the model passes the mask by its name."""

import torch
from torch import nn


class Pool(nn.Module):
    def forward(self, hidden, mask):
        return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.pool, self.head = nn.Linear(4, 4), Pool(), nn.Linear(4, 1)

    def forward(self, x, mask):
        return self.head(self.pool(hidden=self.body(x), mask=mask))


tokens = []


def count(module, args, output):
    for arg in args:
        if arg.dim() == 2:
            tokens.append(int(arg.sum()))


torch.manual_seed(0)
model = Model()
model.pool.register_forward_hook(count)  # <- TH524
model(torch.randn(2, 5, 4), torch.ones(2, 5))
result = tokens
