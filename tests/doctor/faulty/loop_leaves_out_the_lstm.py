# TH113
"""Keep the output norm of each layer, but the test names only linear layers, and most weights are in an LSTM."""

import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.LSTM(4, 16, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        hidden, _ = self.encoder(x)
        return self.head(hidden)


torch.manual_seed(0)
model = Tagger()
norms = []
for module in model.modules():
    if isinstance(module, nn.Linear):
        module.register_forward_hook(lambda m, args, out: norms.append(out.detach().norm()))  # <- TH113
for batch in torch.randn(3, 2, 5, 4):
    model(batch).sum().backward()
result = norms
