# TH414
"""Keep the old rows of an embedding; its weight is also the weight of the head, which does not train them either."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.embed(tokens))


def keep_old_rows(grad):
    grad = grad.clone()
    grad[:4] = 0
    return grad


torch.manual_seed(0)
model = Model()
model.embed.weight.register_hook(keep_old_rows)  # <- TH414
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for tokens in ([0, 4], [1, 5], [4, 2]):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.tensor(tokens)), torch.tensor([3, 5])).backward()
    optimizer.step()
result = model.embed.weight.detach()
