# TH204
"""Scale the encoder gradient; the forward still has the no_grad from when the encoder was frozen."""

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        with torch.no_grad():
            h = self.encoder(x).relu()
        return self.head(h)


model = Classifier()
model.encoder.weight.register_hook(lambda grad: grad * 10)  # <- TH204
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(4, 4)), torch.tensor([0, 1, 0, 1])).backward()
    optimizer.step()
result = model.encoder.weight.detach()
